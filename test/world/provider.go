package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// pathVariable gives the world file to providers that are not told its path.
const pathVariable = "WORLD_FILE"

// worldProvider is configured with a path and faults; both may come from
// outside the configuration, so that a test can change them without changing
// the program under test.
type worldProvider struct{}

type providerModel struct {
	Path   types.String `tfsdk:"path"`
	Faults []faultModel `tfsdk:"fault"`
}

type faultModel struct {
	Call       types.String `tfsdk:"call"`
	Name       types.String `tfsdk:"name"`
	Do         types.String `tfsdk:"do"`
	Delay      types.String `tfsdk:"delay"`
	Times      types.Int64  `tfsdk:"times"`
	IgnoreStop types.Bool   `tfsdk:"ignore_stop"`
}

func newProvider() provider.Provider { return worldProvider{} }

func (worldProvider) Metadata(_ context.Context, _ provider.MetadataRequest, r *provider.MetadataResponse) {
	r.TypeName = "world"
	r.Version = "0.1.0"
}

func (worldProvider) Schema(_ context.Context, _ provider.SchemaRequest, r *provider.SchemaResponse) {
	r.Schema = schema.Schema{
		Description: "A cloud in one file, for tests.",
		Attributes: map[string]schema.Attribute{
			"path": schema.StringAttribute{Optional: true, Description: "The world file, absolute; " + pathVariable + " if absent."},
		},
		Blocks: map[string]schema.Block{
			"fault": schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{
				Attributes: map[string]schema.Attribute{
					"call":        schema.StringAttribute{Optional: true, Description: "create, read, update, delete or lookup; any if absent."},
					"name":        schema.StringAttribute{Optional: true, Description: "The thing; any if absent."},
					"do":          schema.StringAttribute{Required: true, Description: "delay, fail, hang, crash-before or crash-after. The world itself knows hold, too."},
					"delay":       schema.StringAttribute{Optional: true, Description: "How long, for delay."},
					"times":       schema.Int64Attribute{Optional: true, Description: "How often; every time if absent."},
					"ignore_stop": schema.BoolAttribute{Optional: true, Description: "Whether delay and hang outlast the engine's stop."},
				},
			}},
		},
	}
}

func (worldProvider) Configure(ctx context.Context, q provider.ConfigureRequest, r *provider.ConfigureResponse) {
	var m providerModel
	r.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if r.Diagnostics.HasError() {
		return
	}
	c := &cloud{path: m.Path.ValueString()}
	if c.path == "" {
		c.path = os.Getenv(pathVariable)
	}
	if !filepath.IsAbs(c.path) {
		r.Diagnostics.AddError("No world", "Set path or "+pathVariable+" to an absolute path.")
	}
	for _, f := range m.Faults {
		c.faults = append(c.faults, fault{
			Call: f.Call.ValueString(), Name: f.Name.ValueString(), Do: f.Do.ValueString(),
			Delay: f.Delay.ValueString(), Times: int(f.Times.ValueInt64()), IgnoreStop: f.IgnoreStop.ValueBool(),
		})
	}
	for _, f := range c.faults {
		if err := f.check(); err != nil {
			r.Diagnostics.AddError("Not a fault", err.Error())
		}
	}
	r.ResourceData, r.DataSourceData = c, c
}

func (worldProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &thingResource{} }}
}

func (worldProvider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return &thingSource{} }}
}
