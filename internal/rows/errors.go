package rows

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/fault"
)

// refuse is an error that the user fixes by editing the configuration.
func refuse(reason, format string, args ...any) error {
	return fault.New(fault.Invalid, reason, fmt.Errorf(format, args...))
}

// quoted shows a text from outside: cut, and with nothing that moves a cursor.
func quoted(s string) string {
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}

func (r *reader) tooMany() error {
	return refuse(TooManyRows, "there are more than %d rows, which is what maxRows allows: raise it, or read a view with fewer", r.config.maxRows())
}

func (r *reader) tooLarge() error {
	return refuse(ReadTooLarge, "the rows hold more than %d bytes: map fewer columns, or read a view with fewer rows", r.options.MaxBytes)
}

func (r *reader) noTable() error {
	return fault.New(fault.Missing, TableMissing, fmt.Errorf("%s has no table or view %s", r.config.where(r.dialect), quoted(strings.Join(r.table, "."))))
}

// errTooMuch ends a connection that sent more than may be read.
var errTooMuch = errors.New("more bytes than may be read")

// connecting marks an error as one of before the first statement.
type connecting struct{ error }

func (c connecting) Unwrap() error { return c.error }

func atConnect(err error) error {
	if err == nil {
		return nil
	}
	return connecting{err}
}

// unclear marks an error of a database that does not say what is missing.
type unclear struct{ error }

func (u unclear) Unwrap() error { return u.error }

// explain marks an error with its kind and reason, and removes secrets from its
// message. Errors that are marked already stay as they are.
func (r *reader) explain(ctx context.Context, err error) error {
	if marked, ok := errors.AsType[*fault.Fault](err); ok {
		return marked
	}
	if errors.Is(err, errTooMuch) {
		return r.tooLarge()
	}
	where := r.config.where(r.dialect)
	_, early := errors.AsType[connecting](err)
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	switch {
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, errClosed):
		return fmt.Errorf("reading from %s: %w", where, context.Canceled)
	case late && !early:
		return fault.New(fault.Later, ReadTimedOut, fmt.Errorf("%s took longer than %s: raise timeout, or read a smaller view", where, r.config.timeout()))
	}
	if known := r.dialect.explain(err, r.config); known != nil {
		return known
	}
	if early {
		return r.unreachable(err)
	}
	return fault.New(fault.Later, ReadIncomplete, fmt.Errorf("the connection to %s ended before all rows were there: %s", where, r.said(err)))
}

// unreachable says why there is no connection. Its message is the same for every
// answer that is not of a database, so that it reveals no open ports.
func (r *reader) unreachable(err error) error {
	where := r.config.where(r.dialect)
	if reason, why := trust(err); reason != "" {
		return fault.New(fault.Denied, reason, fmt.Errorf("the connection to %s is not protected as tls asks: %s", where, why))
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return fault.New(fault.Later, DatabaseUnreachable, fmt.Errorf("the name in %s is not known", where))
	}
	return fault.New(fault.Later, DatabaseUnreachable, fmt.Errorf("nothing answers as %s at %s: it is down, not that, or not to be reached from here", r.name, where))
}

// errPlain is that of a server that would not protect a connection.
var errPlain = errors.New("the server does not offer TLS")

// trust tells what is wrong with a certificate.
func trust(err error) (reason, why string) {
	if errors.Is(err, errPlain) {
		return TLSNotOffered, "the server does not offer TLS"
	}
	if name, ok := errors.AsType[x509.HostnameError](err); ok {
		return TLSNotTrusted, "the server's certificate is not for " + quoted(name.Host) + ": set serverName to the name that it is for"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return TLSNotTrusted, "the server's certificate is of an authority that is not in caRef"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return TLSNotTrusted, "the server's certificate: " + invalid.Error()
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return TLSNotTrusted, "the server's certificate cannot be verified"
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return TLSNotTrusted, "the server refuses ours: " + alert.Error()
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return TLSNotOffered, "the server does not speak TLS"
	}
	return "", ""
}

// said shows what a database or a driver said, without the password in any form
// that an escape could give it.
func (r *reader) said(err error) string { return said(err.Error(), r.config) }

func said(text string, c Config) string {
	password := c.Password.Reveal()
	for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password), strconv.Quote(password), url.UserPassword("", password).String()} {
		if form = strings.Trim(form, `":`); len(form) > 2 {
			text = strings.ReplaceAll(text, form, "•••")
		}
	}
	return quoted(strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// diagnose says which columns are missing, and which are there instead.
func (p *Pools) diagnose(ctx context.Context, key string, c Config, columns []string, err error) error {
	_, vague := errors.AsType[unclear](err)
	if fault.Reason(err, "") != ColumnMissing && !vague {
		return err
	}
	there, failed := p.Describe(ctx, key, c)
	if failed != nil {
		if fault.Reason(failed, "") == TableMissing {
			return failed
		}
		return err
	}
	var gone []string
	for _, name := range append(slices.Clone(columns), c.HighWaterMark) {
		same := func(other string) bool {
			return other == name || c.Kind != PostgreSQL && strings.EqualFold(other, name)
		}
		if name != "" && !slices.ContainsFunc(there, same) && !slices.Contains(gone, quoted(name)) {
			gone = append(gone, quoted(name))
		}
	}
	if gone == nil {
		return err
	}
	const most = 50
	names := make([]string, 0, most)
	for _, name := range there[:min(len(there), most)] {
		names = append(names, quoted(name))
	}
	if len(there) > most {
		names = append(names, "…")
	}
	if len(names) == 0 {
		names = append(names, "none")
	}
	return refuse(ColumnMissing, "there is no column %s; there are %s", strings.Join(gone, ", "), strings.Join(names, ", "))
}
