package main

import (
	"context"
	"crypto/rand"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	rschema "github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/boolplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// simple is a provider that needs nothing.
type simple struct {
	name      string
	arguments map[string]schema.Attribute
	resources []func() resource.Resource
}

func newRandom() provider.Provider {
	return simple{name: "random", resources: []func() resource.Resource{func() resource.Resource { return password{} }}}
}

func newRedis() provider.Provider {
	return simple{name: "redis", arguments: map[string]schema.Attribute{"address": schema.StringAttribute{Optional: true}}}
}

func (s simple) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = s.name
}

func (s simple) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: s.arguments}
}

func (s simple) Configure(context.Context, provider.ConfigureRequest, *provider.ConfigureResponse) {}
func (s simple) DataSources(context.Context) []func() datasource.DataSource                        { return nil }
func (s simple) Resources(context.Context) []func() resource.Resource                              { return s.resources }

// password is random_password, which exists in its state only.
type password struct{}

type passwordModel struct {
	ID      types.String `tfsdk:"id"`
	Result  types.String `tfsdk:"result"`
	Length  types.Int64  `tfsdk:"length"`
	Special types.Bool   `tfsdk:"special"`
}

func (password) Metadata(_ context.Context, _ resource.MetadataRequest, p *resource.MetadataResponse) {
	p.TypeName = "random_password"
}

func (password) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	p.Schema = rschema.Schema{Attributes: attributes{
		"id": computed(), "result": computedSecret(),
		"length":  rschema.Int64Attribute{Required: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()}},
		"special": rschema.BoolAttribute{Optional: true, PlanModifiers: []planmodifier.Bool{boolplanmodifier.RequiresReplace()}},
	}}
}

func (password) Create(ctx context.Context, q resource.CreateRequest, p *resource.CreateResponse) {
	var m passwordModel
	p.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	letters := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if m.Special.IsNull() || m.Special.ValueBool() {
		letters += "!@#$%&*()-_=+[]{}<>:?"
	}
	var result []byte
	for range m.Length.ValueInt64() {
		i, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			p.Diagnostics.AddError("Drawing a password", err.Error())
			return
		}
		result = append(result, letters[i.Int64()])
	}
	m.ID, m.Result = types.StringValue("none"), types.StringValue(string(result))
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

func (password) Read(context.Context, resource.ReadRequest, *resource.ReadResponse) {}

// Update has nothing to do: every argument makes a new password.
func (password) Update(context.Context, resource.UpdateRequest, *resource.UpdateResponse) {}

func (password) Delete(context.Context, resource.DeleteRequest, *resource.DeleteResponse) {}
