package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	rschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// opnSense is the API of OPNsense, or what stands in for it, and a key for it.
type opnSense struct{ uri, key, secret string }

// answerTime bounds a call.
const answerTime = 30 * time.Second

// call makes a call, and reads the answer.
func (o opnSense) call(ctx context.Context, method, path string, in, into any) error {
	ctx, stop := context.WithTimeout(ctx, answerTime)
	defer stop()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, o.uri+"/api/kea/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.SetBasicAuth(o.key, o.secret)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is answered with %s: %s", path, resp.Status, text)
	}
	if string(bytes.TrimSpace(text)) == "[]" {
		return nil // there is no such thing
	}
	return json.Unmarshal(text, into)
}

// change makes a call that changes something, and has the DHCP server take it on.
func (o opnSense) change(ctx context.Context, path string, in any) (uuid string, err error) {
	var answer struct {
		Result, UUID string
		Validations  map[string]string
	}
	if err := o.call(ctx, http.MethodPost, "dhcpv4/"+path, in, &answer); err != nil {
		return "", err
	}
	if answer.Result != "saved" && answer.Result != "deleted" && answer.Result != "not found" {
		return "", fmt.Errorf("%s is answered with %s: %v", path, answer.Result, answer.Validations)
	}
	var done struct{ Status string }
	if err := o.call(ctx, http.MethodPost, "service/reconfigure", struct{}{}, &done); err != nil {
		return answer.UUID, err
	}
	if done.Status != "ok" {
		return answer.UUID, fmt.Errorf("reconfiguring Kea is answered with %q", done.Status)
	}
	return answer.UUID, nil
}

// opnSenseProvider has the names of browningluke/opnsense.
type opnSenseProvider struct{}

func newOPNsense() provider.Provider { return opnSenseProvider{} }

func (opnSenseProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "opnsense"
}

func (opnSenseProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"uri":        schema.StringAttribute{Optional: true},
		"api_key":    schema.StringAttribute{Optional: true, Sensitive: true},
		"api_secret": schema.StringAttribute{Optional: true, Sensitive: true},
	}}
}

// Configure takes the variables of the real provider as well.
func (opnSenseProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m struct {
		URI    types.String `tfsdk:"uri"`
		Key    types.String `tfsdk:"api_key"`
		Secret types.String `tfsdk:"api_secret"`
	}
	if p.Diagnostics.Append(q.Config.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	o := opnSense{
		uri:    strings.TrimSuffix(cmp.Or(m.URI.ValueString(), os.Getenv("OPNSENSE_URI")), "/"),
		key:    cmp.Or(m.Key.ValueString(), os.Getenv("OPNSENSE_API_KEY")),
		secret: cmp.Or(m.Secret.ValueString(), os.Getenv("OPNSENSE_API_SECRET")),
	}
	if o.uri == "" || o.key == "" || o.secret == "" {
		p.Diagnostics.AddError("Configuring opnsense", "no uri, api_key or api_secret: set them, or OPNSENSE_URI, OPNSENSE_API_KEY and OPNSENSE_API_SECRET")
		return
	}
	p.ResourceData = o
}

func (opnSenseProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (opnSenseProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &reservation{} }}
}

// reservation is opnsense_kea_reservation.
type reservation struct{ router opnSense }

type reservationModel struct {
	ID          types.String `tfsdk:"id"`
	Subnet      types.String `tfsdk:"subnet_id"`
	Address     types.String `tfsdk:"ip_address"`
	MAC         types.String `tfsdk:"mac_address"`
	Hostname    types.String `tfsdk:"hostname"`
	Description types.String `tfsdk:"description"`
}

// body is what the router is sent.
func (m reservationModel) body() map[string]any {
	return map[string]any{"reservation": map[string]string{
		"subnet": m.Subnet.ValueString(), "ip_address": m.Address.ValueString(), "hw_address": m.MAC.ValueString(),
		"hostname": m.Hostname.ValueString(), "description": m.Description.ValueString(),
	}}
}

func (r *reservation) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = "opnsense_kea_reservation"
}

func (r *reservation) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	required := rschema.StringAttribute{Required: true}
	p.Schema = rschema.Schema{Attributes: attributes{
		"id": computed(), "subnet_id": required, "ip_address": required, "mac_address": required, "description": text(),
		"hostname": rschema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString("")},
	}}
}

func (r *reservation) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.router, _ = q.ProviderData.(opnSense) // none while the engine only validates
}

func (r *reservation) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	var m reservationModel
	if p.Diagnostics.Append(q.Plan.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	id, err := r.router.change(ctx, "addReservation", m.body())
	if id != "" { // it is there, whatever else failed
		m.ID = types.StringValue(id)
		p.Diagnostics.Append(p.State.Set(ctx, m)...)
	}
	if err != nil {
		p.Diagnostics.AddError("Creating opnsense_kea_reservation", err.Error())
	}
}

func (r *reservation) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	var m reservationModel
	if p.Diagnostics.Append(q.Plan.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	if _, err := r.router.change(ctx, "setReservation/"+m.ID.ValueString(), m.body()); err != nil {
		p.Diagnostics.AddError("Updating opnsense_kea_reservation", err.Error())
		return
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *reservation) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	var m reservationModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	var answer struct {
		Reservation *struct {
			Subnet map[string]struct {
				Selected int `json:"selected"`
			} `json:"subnet"`
			Address     string `json:"ip_address"`
			MAC         string `json:"hw_address"`
			Hostname    string `json:"hostname"`
			Description string `json:"description"`
		} `json:"reservation"`
	}
	if err := r.router.call(ctx, http.MethodGet, "dhcpv4/getReservation/"+m.ID.ValueString(), nil, &answer); err != nil {
		p.Diagnostics.AddError("Reading opnsense_kea_reservation", err.Error())
		return
	}
	found := answer.Reservation
	if found == nil {
		p.State.RemoveResource(ctx)
		return
	}
	m.Address, m.MAC, m.Hostname = types.StringValue(found.Address), types.StringValue(found.MAC), types.StringValue(found.Hostname)
	if found.Description != "" || !m.Description.IsNull() {
		m.Description = types.StringValue(found.Description)
	}
	for id, subnet := range found.Subnet {
		if subnet.Selected == 1 {
			m.Subnet = types.StringValue(id)
		}
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *reservation) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	var m reservationModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	if _, err := r.router.change(ctx, "delReservation/"+m.ID.ValueString(), struct{}{}); err != nil {
		p.Diagnostics.AddError("Deleting opnsense_kea_reservation", err.Error())
	}
}
