package runner

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	maxQuestion = 16 << 20
	maxBody     = 64 << 10 // of an answer that is read, and thrown away
	maxHeader   = 64 << 10
	maxHops     = 5
	maxBanner   = 8 << 10 // of a server of SSH, before its version
	greetWithin = 10 * time.Second
)

// answerHealth is the checker: it reads checks, makes them from where it is,
// and writes how they went, in the same order.
func answerHealth(in io.Reader, out io.Writer, now func() time.Time) error {
	var checks []Check
	if err := json.NewDecoder(io.LimitReader(in, maxQuestion)).Decode(&checks); err != nil {
		return fmt.Errorf("reading the checks: %w", err)
	}
	found := make([]Health, len(checks))
	turn := make(chan struct{}, checkers)
	var all sync.WaitGroup
	for i, c := range checks {
		turn <- struct{}{}
		all.Go(func() {
			found[i] = c.answer(now)
			<-turn
		})
	}
	all.Wait()
	return json.NewEncoder(out).Encode(found)
}

// answer makes the check, once, and says how it went.
func (c Check) answer(now func() time.Time) Health {
	ctx, cancel := context.WithTimeout(context.Background(), c.lasts())
	defer cancel()
	began := now()
	said, err := c.ask(ctx)
	if err != nil && c.Every > 0 {
		if said, err = askAgain(ctx, c.Every, c.ask, err); err != nil {
			return Health{Name: c.Name, Took: now().Sub(began), Message: fmt.Sprintf("%s: not within %v: %v", c.Shown, c.lasts(), err)}
		}
	}
	took := now().Sub(began)
	h := Health{Name: c.Name, OK: err == nil, Took: took}
	shown := took.Round(time.Millisecond)
	switch {
	case err == nil:
		h.Message = fmt.Sprintf("%s %s after %v", c.Shown, said, shown)
	case ctx.Err() != nil:
		h.Message = fmt.Sprintf("%s: no answer within %v", c.Shown, c.lasts())
	default:
		h.Message = fmt.Sprintf("%s: %v, after %v", c.Shown, err, shown)
	}
	return h
}

// askAgain asks after each pause until there is an answer, or ctx ends. The error says why the last
// question failed that ctx did not cut off: one that it did says nothing of who was asked. Before
// the first of them that is last.
func askAgain(ctx context.Context, every time.Duration, ask func(context.Context) (string, error), last error) (string, error) {
	for {
		pause := time.NewTimer(every)
		select {
		case <-ctx.Done():
			pause.Stop()
			return "", last
		case <-pause.C:
		}
		said, err := ask(ctx)
		if err == nil {
			return said, nil
		}
		if ctx.Err() == nil {
			last = err
		}
	}
}

// ask returns the answer.
func (c Check) ask(ctx context.Context) (string, error) {
	switch c.Kind {
	case stack.TCPCheck:
		return "is open", c.dial(ctx)
	case stack.HTTPCheck:
		return c.get(ctx)
	case stack.SSHCheck:
		return "speaks SSH", c.greet(ctx)
	default:
		return "", fmt.Errorf("there is no check of kind %q", c.Kind)
	}
}

// greet connects, and reads the line by which a server of SSH says its version.
func (c Check) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, greetWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Target)
	if err != nil {
		return plainly(err)
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(at); err != nil {
			return plainly(err)
		}
	}
	lines := bufio.NewScanner(io.LimitReader(conn, maxBanner))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "SSH-") {
			return nil
		}
	}
	return errors.New("takes connections, and does not speak SSH")
}

func (c Check) dial(ctx context.Context) error {
	if strings.ContainsFunc(c.Target, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("the address holds a space or a control character")
	}
	host, port, err := net.SplitHostPort(c.Target)
	if err != nil || host == "" || port == "" {
		return errors.New("the address is not of the form host:port")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Target)
	if err != nil {
		return plainly(err)
	}
	return conn.Close()
}

// get asks by HTTP. An answer between 200 and 399 passes, as upstream has it.
// A redirect to another host is such an answer and is not followed: the check
// is of what it names.
func (c Check) get(ctx context.Context) (string, error) {
	u, err := url.Parse(c.Target)
	switch {
	case err != nil:
		return "", errors.New("the URL cannot be read") // the error would quote it
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New("the URL is not one of http or https")
	case u.User != nil:
		return "", errors.New("the URL holds a user or a password")
	case u.Hostname() == "":
		return "", errors.New("the URL has no host")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Target, http.NoBody)
	if err != nil {
		return "", errors.New("the URL cannot be read")
	}
	req.Header.Set("User-Agent", "terrier")
	client := asking()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", plainly(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)); err != nil {
		return "", fmt.Errorf("answered %s and then broke off: %w", status(resp), plainly(err))
	}
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return "", fmt.Errorf("answered %s", status(resp))
	}
	return "answered " + status(resp), nil
}

// asking is a client that goes nowhere but where it is sent: by no proxy, with
// no connection that was there before, and with every certificate verified.
func asking() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            new(net.Dialer).DialContext,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			last := before[len(before)-1].URL
			if next.URL.Hostname() != last.Hostname() || next.URL.User != nil || last.Scheme == "https" && next.URL.Scheme != "https" {
				return http.ErrUseLastResponse
			}
			if len(before) > maxHops {
				return fmt.Errorf("redirected more than %d times", maxHops)
			}
			return nil
		},
	}
}

// status is the code that was answered, and what it means; what a server calls
// it is not repeated.
func status(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// plainly leaves out of an error where the request went: the check's own name
// for that says it, and hides secrets.
func plainly(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		if dns, ok := errors.AsType[*net.DNSError](err); ok {
			return fmt.Errorf("the name cannot be resolved: %s", dns.Err)
		}
		return op.Err
	}
	return err
}
