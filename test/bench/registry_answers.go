package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	answersEach = 200
	slowClients = 10
	slowRate    = 5 << 20 // bytes a second
	slowFor     = 30 * time.Second
)

// answers are what clients get of a registry.
type answers struct{ *site }

// lists measures the lists of versions of what has many.
func (s answers) lists(ctx context.Context, out io.Writer) error {
	for _, list := range []struct{ name, path string }{
		{"versions of a module", "/v1/modules/bench/many/demo/versions"},
		{"versions of a provider, each for 6 platforms", "/v1/providers/bench/many/versions"},
		{fmt.Sprintf("index.json of the mirror, with %d rules", deniedPatterns), "/v1/mirror/" + mirroredHost + "/acme/many/index.json"},
	} {
		if err := s.answer(ctx, out, list.name, list.path); err != nil {
			return err
		}
	}
	return nil
}

func (s answers) answer(ctx context.Context, out io.Writer, name, path string) error {
	f := newFacts(out, fmt.Sprintf("%s: %d", name, manyVersions))
	_, first, err := s.body(ctx, path)
	if err != nil {
		return err
	}
	f.fact("the first answer after a start", ms(first)+" ms", "")
	for _, way := range []struct{ name, accept string }{{"as it is", "identity"}, {"to a client that takes gzip, as engines do", "gzip"}} {
		var took []time.Duration
		var size int64
		before, err := s.used()
		if err != nil {
			return err
		}
		for range answersEach {
			n, d, err := s.body(ctx, path, "Accept-Encoding", way.accept)
			if err != nil {
				return err
			}
			took, size = append(took, d), n
		}
		after, err := s.used()
		if err != nil {
			return err
		}
		slices.Sort(took)
		f.fact(way.name+": p50, p95, max", fmt.Sprintf("%s, %s, %s ms", ms(percentile(took, 50)), ms(percentile(took, 95)), ms(took[len(took)-1])), "≤ 200 ms")
		f.fact("… size; CPU of the registry", fmt.Sprintf("%.0f KiB; %.1f ms", float64(size)/(1<<10), (after-before).Seconds()*1000/answersEach), "")
	}
	return errors.Join(s.held(f), f.err)
}

// body reads an answer to its end.
func (s answers) body(ctx context.Context, path string, header ...string) (int64, time.Duration, error) {
	began := time.Now()
	answer, err := s.ask(ctx, path, header...)
	if err != nil {
		return 0, 0, err
	}
	n, err := io.Copy(io.Discard, answer.Body)
	return n, time.Since(began), errors.Join(err, answer.Body.Close())
}

// slow measures the registry while clients with a slow line take a large archive: what it
// holds, and what others wait.
func (s answers) slow(ctx context.Context, out io.Writer) error {
	alone, err := s.others(ctx, slowFor/3)
	if err != nil {
		return err
	}
	location, err := s.locationOf(ctx, "large")
	if err != nil {
		return err
	}
	f := newFacts(out, fmt.Sprintf("%d clients take an archive of %s at %s a second each, for %s", slowClients, mib(largeArchive), mib(slowRate), slowFor))
	if err := s.held(f); err != nil {
		return err
	}
	began, err := s.used()
	if err != nil {
		return err
	}
	var meanwhile []time.Duration
	taking, within := errgroup.WithContext(ctx)
	for range slowClients {
		taking.Go(func() error { return s.take(within, location) })
	}
	taking.Go(func() (err error) {
		meanwhile, err = s.others(within, slowFor)
		return err
	})
	if err := taking.Wait(); err != nil {
		return err
	}
	ended, err := s.used()
	if err != nil {
		return err
	}
	f.fact("then: registry: CPU", fmt.Sprintf("%.1f %% of a core", 100*(ended-began).Seconds()/slowFor.Seconds()), "")
	f.fact("others: an address of an archive and the archive, alone: p50, p95", answered(alone), "")
	f.fact("… meanwhile: p50, p95", answered(meanwhile), "")
	return errors.Join(s.held(f), f.err)
}

func answered(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("%s, %s ms of %d", ms(percentile(took, 50)), ms(percentile(took, 95)), len(took))
}

// others are clients of a small module, one after another, for a time.
func (s answers) others(ctx context.Context, within time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	for end := time.Now().Add(within); time.Now().Before(end); {
		began := time.Now()
		location, err := s.locationOf(ctx, "hello")
		if err != nil {
			return nil, err
		}
		if _, _, err := s.body(ctx, location); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// locationOf is the signed address of the archive of a module.
func (s answers) locationOf(ctx context.Context, module string) (string, error) {
	answer, err := s.ask(ctx, "/v1/modules/bench/"+module+"/demo/1.0.0/download")
	if err != nil {
		return "", err
	}
	var said struct{ Location string }
	if err := errors.Join(json.NewDecoder(answer.Body).Decode(&said), answer.Body.Close()); err != nil {
		return "", err
	}
	at, err := answer.Request.URL.Parse(said.Location)
	if err != nil {
		return "", err
	}
	return at.RequestURI(), nil
}

// take reads an archive over a connection of its own, no faster than the line is.
func (s answers) take(ctx context.Context, location string) error {
	transport, ok := s.http.Transport.(*http.Transport)
	if !ok {
		return errors.New("the client has another transport")
	}
	own := transport.Clone()
	defer own.CloseIdleConnections()
	alone := *s.site
	alone.http = &http.Client{Transport: own}
	answer, err := alone.ask(ctx, location)
	if err != nil {
		return err
	}
	if answer.ContentLength != largeArchive {
		return errors.Join(fmt.Errorf("the archive has %d bytes", answer.ContentLength), answer.Body.Close())
	}
	const step = 50 * time.Millisecond
	for end := time.Now().Add(slowFor); time.Now().Before(end); {
		if _, err := io.CopyN(io.Discard, answer.Body, slowRate/int64(time.Second/step)); err != nil {
			return errors.Join(err, answer.Body.Close())
		}
		if err := sleep(ctx, step); err != nil {
			return errors.Join(err, answer.Body.Close())
		}
	}
	return answer.Body.Close() // the rest is not taken
}
