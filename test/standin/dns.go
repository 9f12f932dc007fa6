package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	rschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/miekg/dns"
)

// nameServer is a real DNS server that takes updates (RFC 2136), and a key for them (RFC 8945).
type nameServer struct{ address, key, algorithm, secret string }

// exchange sends a message that is signed, and returns the answer.
func (s nameServer) exchange(ctx context.Context, m *dns.Msg) (*dns.Msg, error) {
	c := &dns.Client{Net: "tcp", Timeout: 10 * time.Second}
	if s.key != "" {
		c.TsigSecret = map[string]string{s.key: s.secret}
		m.SetTsig(s.key, s.algorithm, 300, time.Now().Unix())
	}
	r, _, err := c.ExchangeContext(ctx, m, s.address)
	return r, err
}

// put makes addresses those of a name; none of them deletes the record.
func (s nameServer) put(ctx context.Context, zone, name string, ttl int64, addresses []string) error {
	m := new(dns.Msg)
	m.SetUpdate(zone)
	header := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: uint32(ttl)}
	m.RemoveRRset([]dns.RR{&dns.A{Hdr: header}})
	for _, a := range addresses {
		ip := net.ParseIP(a).To4()
		if ip == nil {
			return fmt.Errorf("%q is no IPv4 address", a)
		}
		m.Insert([]dns.RR{&dns.A{Hdr: header, A: ip}})
	}
	r, err := s.exchange(ctx, m)
	if err == nil && r.Rcode != dns.RcodeSuccess {
		err = fmt.Errorf("the update of %s is answered with %s", name, dns.RcodeToString[r.Rcode])
	}
	return err
}

// get reads the addresses of a name.
func (s nameServer) get(ctx context.Context, name string) (addresses []string, ttl int64, err error) {
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	r, err := s.exchange(ctx, m)
	if err == nil && r.Rcode != dns.RcodeSuccess && r.Rcode != dns.RcodeNameError {
		err = fmt.Errorf("the question for %s is answered with %s", name, dns.RcodeToString[r.Rcode])
	}
	if err != nil {
		return nil, 0, err
	}
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			addresses, ttl = append(addresses, a.A.String()), int64(a.Hdr.Ttl)
		}
	}
	slices.Sort(addresses)
	return addresses, ttl, nil
}

// dnsProvider has the names of hashicorp/dns.
type dnsProvider struct{}

func newDNS() provider.Provider { return dnsProvider{} }

func (dnsProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "dns"
}

func (dnsProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Blocks: map[string]schema.Block{"update": schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
		"server":        schema.StringAttribute{Optional: true},
		"port":          schema.StringAttribute{Optional: true},
		"key_name":      schema.StringAttribute{Optional: true},
		"key_algorithm": schema.StringAttribute{Optional: true},
		"key_secret":    schema.StringAttribute{Optional: true, Sensitive: true},
	}}}}}
}

// Configure takes the variables of the real provider as well.
func (dnsProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m struct {
		Update []struct {
			Server    types.String `tfsdk:"server"`
			Port      types.String `tfsdk:"port"`
			Key       types.String `tfsdk:"key_name"`
			Algorithm types.String `tfsdk:"key_algorithm"`
			Secret    types.String `tfsdk:"key_secret"`
		} `tfsdk:"update"`
	}
	if p.Diagnostics.Append(q.Config.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	server, port := os.Getenv("DNS_UPDATE_SERVER"), os.Getenv("DNS_UPDATE_PORT")
	s := nameServer{key: os.Getenv("DNS_UPDATE_KEYNAME"), algorithm: os.Getenv("DNS_UPDATE_KEYALGORITHM"), secret: os.Getenv("DNS_UPDATE_KEYSECRET")}
	for _, u := range m.Update {
		server, port = cmp.Or(u.Server.ValueString(), server), cmp.Or(u.Port.ValueString(), port)
		s.key, s.algorithm, s.secret = cmp.Or(u.Key.ValueString(), s.key), cmp.Or(u.Algorithm.ValueString(), s.algorithm), cmp.Or(u.Secret.ValueString(), s.secret)
	}
	if server == "" {
		p.Diagnostics.AddError("Configuring dns", "no server: set update.server, or DNS_UPDATE_SERVER")
		return
	}
	s.address, s.algorithm = net.JoinHostPort(server, cmp.Or(port, "53")), dns.Fqdn(cmp.Or(s.algorithm, "hmac-sha256"))
	p.ResourceData = s
}

func (dnsProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (dnsProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &recordSet{} }}
}

// recordSet is dns_a_record_set.
type recordSet struct{ server nameServer }

type recordSetModel struct {
	ID        types.String `tfsdk:"id"`
	Zone      types.String `tfsdk:"zone"`
	Name      types.String `tfsdk:"name"`
	Addresses []string     `tfsdk:"addresses"`
	TTL       types.Int64  `tfsdk:"ttl"`
}

func (m recordSetModel) name() string {
	return strings.TrimPrefix(m.Name.ValueString()+"."+m.Zone.ValueString(), ".")
}

func (r *recordSet) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = "dns_a_record_set"
}

func (r *recordSet) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = rschema.Schema{Attributes: attributes{
		"id": computed(), "zone": naming(), "name": rschema.StringAttribute{Optional: true, PlanModifiers: another()},
		"addresses": rschema.SetAttribute{Required: true, ElementType: types.StringType}, "ttl": numberOr(3600),
	}}
}

func (r *recordSet) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	r.server, _ = q.ProviderData.(nameServer) // none while the engine only validates
}

// write makes the record what the model says.
func (r *recordSet) write(ctx context.Context, m *recordSetModel) error {
	if !dns.IsFqdn(m.Zone.ValueString()) {
		return errors.New("zone has to end with a dot")
	}
	m.ID = types.StringValue(m.name())
	return r.server.put(ctx, m.Zone.ValueString(), m.name(), m.TTL.ValueInt64(), m.Addresses)
}

func (r *recordSet) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	var m recordSetModel
	if p.Diagnostics.Append(q.Plan.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	if err := r.write(ctx, &m); err != nil {
		p.Diagnostics.AddError("Creating dns_a_record_set", err.Error())
		return
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *recordSet) Update(ctx context.Context, q resource.UpdateRequest, p *resource.UpdateResponse) {
	var m recordSetModel
	if p.Diagnostics.Append(q.Plan.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	if err := r.write(ctx, &m); err != nil {
		p.Diagnostics.AddError("Updating dns_a_record_set", err.Error())
		return
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (r *recordSet) Read(ctx context.Context, q resource.ReadRequest, p *resource.ReadResponse) {
	var m recordSetModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	addresses, ttl, err := r.server.get(ctx, m.name())
	switch {
	case err != nil:
		p.Diagnostics.AddError("Reading dns_a_record_set", err.Error())
	case len(addresses) == 0:
		p.State.RemoveResource(ctx)
	default:
		m.Addresses, m.TTL = addresses, types.Int64Value(ttl)
		p.Diagnostics.Append(p.State.Set(ctx, m)...)
	}
}

func (r *recordSet) Delete(ctx context.Context, q resource.DeleteRequest, p *resource.DeleteResponse) {
	var m recordSetModel
	if p.Diagnostics.Append(q.State.Get(ctx, &m)...); p.Diagnostics.HasError() {
		return
	}
	if err := r.server.put(ctx, m.Zone.ValueString(), m.name(), 0, nil); err != nil {
		p.Diagnostics.AddError("Deleting dns_a_record_set", err.Error())
	}
}
