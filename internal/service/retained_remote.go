package service

import (
	"context"
	"errors"
	"io"
	"net/url"
)

// RemoteRetained are the RetainedStacks of a server.
type RemoteRetained struct{ r *Remote }

var _ RetainedStacks = (*RemoteRetained)(nil)

// NamedRetained names the record of one stack that is gone.
type NamedRetained struct {
	UID string `json:"uid"`
}

// ConnectRetained returns the records of the server of a cluster, and the
// namespace that is meant when none is named.
func ConnectRetained(ctx context.Context, c Connection) (*RemoteRetained, string, error) {
	config, namespace, err := c.config()
	if err != nil {
		return nil, "", err
	}
	r, err := remoteOf(ctx, config, c.Server)
	return &RemoteRetained{r}, namespace, err
}

// List implements RetainedStacks.
func (k *RemoteRetained) List(ctx context.Context, namespace string) ([]Retained, error) {
	query := url.Values{}
	text(query, "namespace", namespace)
	var list struct {
		Items []Retained `json:"items"`
	}
	err := k.r.json(ctx, &list, k.r.at(query, "retained"))
	return list.Items, err
}

// State implements RetainedStacks.
func (k *RemoteRetained) State(ctx context.Context, key Key, uid string) (io.ReadCloser, error) {
	if err := errors.Join(key.check(), checkID(StackID{UID: uid}, "any")); err != nil {
		return nil, err
	}
	return k.r.open(ctx, requestTime, k.r.at(url.Values{"uid": {uid}}, object(key, "retained", "state")...))
}

// Forget implements RetainedStacks.
func (k *RemoteRetained) Forget(ctx context.Context, key Key, uid string) error {
	if err := key.check(); err != nil {
		return err
	}
	return k.r.post(ctx, commandTime, NamedRetained{uid}, nil, object(key, "retained", "forget")...)
}
