package kubeapi

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// renewEvery is how often a running control plane looks whether its certificate ends soon.
const renewEvery = 6 * time.Hour

// keepCertificate renews the serving certificate of a control plane that runs for longer than
// it lasts. kube-apiserver reads the file again when it changes. It returns what stops it.
func (s *Server) keepCertificate(ctx context.Context, d dir, o Options) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		ticks := o.renewals
		if ticks == nil {
			ticker := time.NewTicker(renewEvery)
			defer ticker.Stop()
			ticks = ticker.C
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks:
			}
			if err := s.renewCertificate(d, o); err != nil {
				o.Log.Error("certificate of the kubernetes api not renewed; this is tried again", "after", renewEvery, "err", err)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (s *Server) renewCertificate(d dir, o Options) error {
	ca, err := readPair(d.authority())
	if err != nil {
		return err
	}
	if now := o.Now(); !fresh(ca.certificate, now, renewBefore) {
		return fmt.Errorf("its authority ends at %s, and is replaced at a start only: stop Terrier, and start it again", ca.certificate.NotAfter.UTC().Format(time.RFC3339))
	}
	issued, err := ensureServer(s.keys.server, ca, s.address, o.Now())
	if issued {
		o.Log.Info("certificate of the kubernetes api renewed")
	}
	return err
}
