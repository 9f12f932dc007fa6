package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// pve is the API of Proxmox VE, or what stands in for it, and a token for it.
type pve struct {
	endpoint, token string
	client          *http.Client
}

// refusal is an answer that is no success.
type refusal struct {
	call, message string
	status        int
}

func (r refusal) Error() string {
	return fmt.Sprintf("%s is answered with %d: %s", r.call, r.status, r.message)
}

// says reports whether an error is an answer with some text.
func says(err error, text string) bool {
	r, ok := errors.AsType[refusal](err)
	return ok && strings.Contains(r.message, text)
}

const (
	// patience is how long a task may take.
	patience = 30 * time.Minute
	// unlocking is how long a machine may be locked by something else.
	unlocking = 3 * time.Second
)

// ask makes a call and returns its data. A call that reads is repeated if no answer came, or
// the node could not be reached. A machine that is locked is asked for again for a while.
func (p pve) ask(ctx context.Context, method, path string, form url.Values) (json.RawMessage, error) {
	late, pause := time.Now().Add(unlocking), 50*time.Millisecond
	for tries := 1; ; tries++ {
		data, err := p.send(ctx, method, path, form)
		r, answered := errors.AsType[refusal](err)
		away := err != nil && (!answered || r.status == 595 || r.status == 596)
		locked := says(err, "VM is locked") && time.Now().Before(late)
		if !locked && (!away || method != http.MethodGet || tries == 3) {
			return data, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(2*pause, time.Second)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p pve) send(ctx context.Context, method, path string, form url.Values) (json.RawMessage, error) {
	target, body := p.endpoint+"/api2/json/"+path, ""
	if method == http.MethodGet || method == http.MethodDelete {
		if len(form) > 0 {
			target += "?" + form.Encode()
		}
	} else {
		body = form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "PVEAPIToken="+p.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	var said struct {
		Data    json.RawMessage
		Message string
		Errors  map[string]string
	}
	if err := json.Unmarshal(text, &said); err != nil && resp.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		message := cmp.Or(strings.TrimSpace(said.Message), resp.Status)
		for _, name := range slices.Sorted(maps.Keys(said.Errors)) {
			message += " " + name + ": " + said.Errors[name]
		}
		return nil, refusal{method + " " + path, message, resp.StatusCode}
	}
	return said.Data, nil
}

// get reads data into a value.
func (p pve) get(ctx context.Context, path string, form url.Values, into any) error {
	data, err := p.ask(ctx, http.MethodGet, path, form)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	return err
}

// do makes a call, and waits for its task if it starts one.
func (p pve) do(ctx context.Context, method, path string, form url.Values) error {
	data, err := p.ask(ctx, method, path, form)
	if err != nil {
		return err
	}
	var upid string
	if json.Unmarshal(data, &upid) != nil || !strings.HasPrefix(upid, "UPID:") {
		return nil // it is done already
	}
	return p.task(ctx, upid)
}

// task waits until a task is over. It fails as the task does, with the last line of its log.
func (p pve) task(ctx context.Context, upid string) error {
	node := strings.Split(upid, ":")[1]
	path := "nodes/" + node + "/tasks/" + url.PathEscape(upid)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var t struct{ Status, ExitStatus, Type string }
		if err := p.get(ctx, path+"/status", nil, &t); err != nil {
			return err
		}
		switch {
		case t.Status != "stopped":
		case t.ExitStatus == "OK" || strings.HasPrefix(t.ExitStatus, "WARNINGS"):
			return nil
		default:
			return fmt.Errorf("the task %s failed: %s", t.Type, t.ExitStatus)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// pveRow is a machine as the list of all machines has it.
type pveRow struct {
	VMID                     int64
	Name, Node, Status, Pool string
	Tags, Lock               string
	Template                 int
}

func (p pve) rows(ctx context.Context) ([]pveRow, error) {
	var rows []pveRow
	err := p.get(ctx, "cluster/resources", url.Values{"type": {"vm"}}, &rows)
	return rows, err
}

// row finds a machine, on whichever node it is.
func (p pve) row(ctx context.Context, id int64) (pveRow, bool, error) {
	rows, err := p.rows(ctx)
	i := slices.IndexFunc(rows, func(r pveRow) bool { return r.VMID == id })
	if err != nil || i < 0 {
		return pveRow{}, false, err
	}
	return rows[i], true, nil
}

func tagList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(";, ", r) })
}

// pveProvider has the names of bpg/proxmox, as far as the module proxmox-vm uses them:
// https://registry.terraform.io/providers/bpg/proxmox/latest/docs.
type pveProvider struct{}

func newProxmox() provider.Provider { return pveProvider{} }

func (pveProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "proxmox"
}

func (pveProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"endpoint":  schema.StringAttribute{Optional: true},
		"api_token": schema.StringAttribute{Optional: true, Sensitive: true},
		"insecure":  schema.BoolAttribute{Optional: true},
	}}
}

// Configure takes the variables of the real provider as well.
func (pveProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m struct {
		Endpoint types.String `tfsdk:"endpoint"`
		APIToken types.String `tfsdk:"api_token"`
		Insecure types.Bool   `tfsdk:"insecure"`
	}
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	api := pve{
		endpoint: strings.TrimSuffix(strings.TrimSuffix(cmp.Or(m.Endpoint.ValueString(), os.Getenv("PROXMOX_VE_ENDPOINT")), "/"), "/api2/json"),
		token:    cmp.Or(m.APIToken.ValueString(), os.Getenv("PROXMOX_VE_API_TOKEN")),
		client:   &http.Client{Timeout: time.Minute},
	}
	if m.Insecure.ValueBool() || os.Getenv("PROXMOX_VE_INSECURE") == "true" {
		api.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	if api.endpoint == "" {
		p.Diagnostics.AddError("Configuring proxmox", "no endpoint: set endpoint, or PROXMOX_VE_ENDPOINT")
	}
	if api.token == "" {
		p.Diagnostics.AddError("Configuring proxmox", "no API token: set api_token, or PROXMOX_VE_API_TOKEN")
	}
	p.ResourceData, p.DataSourceData = api, api
}

func (pveProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return &pveVMs{} }}
}

func (pveProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &pveVM{} }}
}
