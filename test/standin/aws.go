package main

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

const awsAccount = "123456789012"

type awsProvider struct{}

func newAWS() provider.Provider { return awsProvider{} }

func (awsProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "aws"
}

func (awsProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: map[string]schema.Attribute{"region": schema.StringAttribute{Optional: true}}}
}

func (awsProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m struct {
		Region types.String `tfsdk:"region"`
	}
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	c, err := fromEnvironment()
	if err != nil {
		p.Diagnostics.AddError("Configuring aws", err.Error())
		return
	}
	p.ResourceData = &session{cloud: c, region: m.Region.ValueString()}
}

func (awsProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (awsProvider) Resources(context.Context) []func() resource.Resource {
	var all []func() resource.Resource
	for _, kinds := range [][]kind{storageKinds(), computeKinds(), identityKinds()} {
		for _, k := range kinds {
			all = append(all, func() resource.Resource { return &thing{kind: k} })
		}
	}
	return all
}

// by names a resource after one of its arguments.
func by(argument string) func(map[string]any, int) string {
	return func(asked map[string]any, _ int) string { return fmt.Sprint(asked[argument]) }
}

// numbered names a resource by when it was made.
func numbered(format string) func(map[string]any, int) string {
	return func(_ map[string]any, n int) string { return fmt.Sprintf(format, n) }
}

func identityKinds() []kind {
	return []kind{
		{
			name:       "aws_iam_user",
			attributes: attributes{"id": computed(), "arn": computed(), "unique_id": computed(), "name": naming(), "path": text(), "tags": tags()},
			id:         by("name"),
			computed: func(_ map[string]any, id, _ string) map[string]any {
				return map[string]any{"arn": "arn:aws:iam::" + awsAccount + ":user/" + id, "unique_id": "AIDA" + id}
			},
		},
		{
			name:       "aws_iam_access_key",
			attributes: attributes{"id": computed(), "secret": computedSecret(), "user": naming()},
			id:         numbered("AKIA%016d"),
			computed: func(asked map[string]any, id, _ string) map[string]any {
				return map[string]any{"secret": fmt.Sprintf("secret-of-%s-%s", asked["user"], id)}
			},
		},
		{
			name:       "aws_iam_user_policy",
			attributes: attributes{"id": computed(), "name": naming(), "user": naming(), "policy": text()},
			id:         func(asked map[string]any, _ int) string { return fmt.Sprintf("%s:%s", asked["user"], asked["name"]) },
		},
	}
}
