package main

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// The few forms that attributes and blocks have.

// naming is an argument whose change makes another resource.
func naming() schema.Attribute {
	return schema.StringAttribute{Required: true, PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}}
}

func text() schema.Attribute   { return schema.StringAttribute{Optional: true} }
func secret() schema.Attribute { return schema.StringAttribute{Optional: true, Sensitive: true} }
func number() schema.Attribute { return schema.Int64Attribute{Optional: true} }
func truth() schema.Attribute  { return schema.BoolAttribute{Optional: true} }

func texts() schema.Attribute {
	return schema.ListAttribute{Optional: true, ElementType: types.StringType}
}

func set() schema.Attribute {
	return schema.SetAttribute{Optional: true, ElementType: types.StringType}
}

func tags() schema.Attribute {
	return schema.MapAttribute{Optional: true, ElementType: types.StringType}
}

func computed() schema.Attribute {
	return schema.StringAttribute{Computed: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

func computedSecret() schema.Attribute {
	return schema.StringAttribute{Computed: true, Sensitive: true, PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}}
}

func computedNumber() schema.Attribute {
	return schema.Int64Attribute{Computed: true, PlanModifiers: []planmodifier.Int64{int64planmodifier.UseStateForUnknown()}}
}

type (
	attributes = map[string]schema.Attribute
	blocks     = map[string]schema.Block
)

// block is a nested block, as often as one likes.
func block(a attributes, b blocks) schema.Block {
	return schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{Attributes: a, Blocks: b}}
}
