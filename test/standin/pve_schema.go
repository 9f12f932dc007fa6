package main

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/listplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Arguments with a default.

func textOr(v string) schema.Attribute {
	return schema.StringAttribute{Optional: true, Computed: true, Default: stringdefault.StaticString(v)}
}

func numberOr(v int64) schema.Attribute {
	return schema.Int64Attribute{Optional: true, Computed: true, Default: int64default.StaticInt64(v)}
}

func truthOr(v bool) schema.Attribute {
	return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(v)}
}

// readTexts is a list that the machine tells.
func readTexts(of schema.ListAttribute) schema.Attribute {
	of.Computed, of.PlanModifiers = true, []planmodifier.List{listplanmodifier.UseStateForUnknown()}
	return of
}

// nodeName is another machine if it changes, unless the machine may move.
func nodeName() schema.Attribute {
	moves := func(ctx context.Context, q planmodifier.StringRequest, p *stringplanmodifier.RequiresReplaceIfFuncResponse) {
		var migrate types.Bool
		p.Diagnostics.Append(q.Plan.GetAttribute(ctx, path.Root("migrate"), &migrate)...)
		p.RequiresReplace = !migrate.ValueBool()
	}
	const why = "without migrate it is another machine"
	return schema.StringAttribute{Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplaceIf(moves, why, why)}}
}

// another has a change make another machine.
func another() []planmodifier.String {
	return []planmodifier.String{stringplanmodifier.RequiresReplace()}
}

// Schema has defaults where the documentation of the real provider has them.
func (r *pveVM) Schema(_ context.Context, _ resource.SchemaRequest, p *resource.SchemaResponse) {
	ipv4 := block(attributes{"address": text(), "gateway": text()}, nil)
	p.Schema = schema.Schema{
		Attributes: attributes{
			"id": computed(),
			"vm_id": schema.Int64Attribute{Optional: true, Computed: true, PlanModifiers: []planmodifier.Int64{
				int64planmodifier.UseStateForUnknown(), int64planmodifier.RequiresReplace(),
			}},
			"name": text(), "node_name": nodeName(), "description": text(), "pool_id": text(), "tags": texts(),
			"started": truthOr(true), "on_boot": truthOr(true), "protection": truth(), "migrate": truthOr(false),
			"stop_on_destroy": truthOr(false), "reboot_after_update": truthOr(true),
			"ipv4_addresses":          readTexts(schema.ListAttribute{ElementType: types.ListType{ElemType: types.StringType}}),
			"mac_addresses":           readTexts(schema.ListAttribute{ElementType: types.StringType}),
			"network_interface_names": readTexts(schema.ListAttribute{ElementType: types.StringType}),
		},
		Blocks: blocks{
			"agent": block(attributes{"enabled": truthOr(false), "timeout": textOr("15m")}, nil),
			"clone": block(attributes{
				"vm_id":        schema.Int64Attribute{Required: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.RequiresReplace()}},
				"node_name":    schema.StringAttribute{Optional: true, PlanModifiers: another()},
				"datastore_id": schema.StringAttribute{Optional: true, PlanModifiers: another()},
				"full":         truthOr(true), "retries": numberOr(1),
			}, nil),
			"cpu":    block(attributes{"cores": numberOr(1), "sockets": numberOr(1), "type": text()}, nil),
			"memory": block(attributes{"dedicated": numberOr(512)}, nil),
			"disk":   block(attributes{"interface": required(), "datastore_id": textOr("local-lvm"), "size": numberOr(8)}, nil),
			"network_device": block(attributes{
				"bridge": textOr("vmbr0"), "model": textOr("virtio"), "vlan_id": numberOr(0), "firewall": truthOr(false),
				"mac_address": schema.StringAttribute{Optional: true, Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}},
			}, nil),
			"initialization": block(attributes{"datastore_id": textOr("local-lvm"), "user_data_file_id": text()}, blocks{
				"ip_config":    block(nil, blocks{"ipv4": ipv4}),
				"dns":          block(attributes{"domain": text(), "servers": texts()}, nil),
				"user_account": block(attributes{"username": text(), "keys": texts(), "password": secret()}, nil),
			}),
			"operating_system": block(attributes{"type": textOr("other")}, nil),
			"serial_device":    block(attributes{"device": textOr("socket")}, nil),
		},
	}
}
