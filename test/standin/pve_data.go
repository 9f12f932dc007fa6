package main

import (
	"context"
	"regexp"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// pveVMs is proxmox_virtual_environment_vms.
type pveVMs struct{ api pve }

type pveVMsModel struct {
	ID       types.String `tfsdk:"id"`
	NodeName types.String `tfsdk:"node_name"`
	Tags     []string     `tfsdk:"tags"`
	Filter   []pveFilter  `tfsdk:"filter"`
	VMs      []pveFound   `tfsdk:"vms"`
}

type pveFilter struct {
	Name   string     `tfsdk:"name"`
	Values []string   `tfsdk:"values"`
	Regex  types.Bool `tfsdk:"regex"`
}

type pveFound struct {
	Name     string   `tfsdk:"name"`
	NodeName string   `tfsdk:"node_name"`
	Status   string   `tfsdk:"status"`
	Tags     []string `tfsdk:"tags"`
	Template bool     `tfsdk:"template"`
	VMID     int64    `tfsdk:"vm_id"`
}

func (d *pveVMs) Metadata(_ context.Context, _ datasource.MetadataRequest, p *datasource.MetadataResponse) {
	p.TypeName = "proxmox_virtual_environment_vms"
}

func (d *pveVMs) Schema(_ context.Context, _ datasource.SchemaRequest, p *datasource.SchemaResponse) {
	p.Schema = schema.Schema{
		Attributes: map[string]schema.Attribute{
			"id":        schema.StringAttribute{Computed: true},
			"node_name": schema.StringAttribute{Optional: true},
			"tags":      schema.ListAttribute{Optional: true, ElementType: types.StringType},
			"vms": schema.ListNestedAttribute{Computed: true, NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"name":      schema.StringAttribute{Computed: true},
				"node_name": schema.StringAttribute{Computed: true},
				"status":    schema.StringAttribute{Computed: true},
				"tags":      schema.ListAttribute{Computed: true, ElementType: types.StringType},
				"template":  schema.BoolAttribute{Computed: true},
				"vm_id":     schema.Int64Attribute{Computed: true},
			}}},
		},
		Blocks: map[string]schema.Block{"filter": schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
			"name":   schema.StringAttribute{Required: true},
			"values": schema.ListAttribute{Required: true, ElementType: types.StringType},
			"regex":  schema.BoolAttribute{Optional: true},
		}}}},
	}
}

func (d *pveVMs) Configure(_ context.Context, q datasource.ConfigureRequest, _ *datasource.ConfigureResponse) {
	d.api, _ = q.ProviderData.(pve) // none while the engine only validates
}

func (d *pveVMs) Read(ctx context.Context, q datasource.ReadRequest, p *datasource.ReadResponse) {
	var m pveVMsModel
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	rows, err := d.api.rows(ctx)
	if err != nil {
		p.Diagnostics.AddError("Reading proxmox_virtual_environment_vms", err.Error())
		return
	}
	m.ID, m.VMs = types.StringValue("vms"), []pveFound{}
	for _, r := range rows {
		f := pveFound{Name: r.Name, NodeName: r.Node, Status: r.Status, Tags: append([]string{}, tagList(r.Tags)...), Template: r.Template == 1, VMID: r.VMID}
		slices.Sort(f.Tags)
		fits, err := m.takes(f)
		if err != nil {
			p.Diagnostics.AddError("Reading proxmox_virtual_environment_vms", err.Error())
			return
		}
		if fits {
			m.VMs = append(m.VMs, f)
		}
	}
	p.Diagnostics.Append(p.State.Set(ctx, m)...)
}

// takes reports whether a machine has the node, all tags, and a value of each filter.
func (m pveVMsModel) takes(f pveFound) (bool, error) {
	if !m.NodeName.IsNull() && m.NodeName.ValueString() != f.NodeName {
		return false, nil
	}
	for _, tag := range m.Tags {
		if !slices.Contains(f.Tags, tag) {
			return false, nil
		}
	}
	fields := map[string]string{"name": f.Name, "node_name": f.NodeName, "status": f.Status, "template": strconv.FormatBool(f.Template)}
	for _, filter := range m.Filter {
		fits := slices.Contains(filter.Values, fields[filter.Name])
		if filter.Regex.ValueBool() {
			fits = false
			for _, v := range filter.Values {
				pattern, err := regexp.Compile(v)
				if err != nil {
					return false, err
				}
				fits = fits || pattern.MatchString(fields[filter.Name])
			}
		}
		if !fits {
			return false, nil
		}
	}
	return true, nil
}
