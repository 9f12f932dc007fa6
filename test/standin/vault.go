package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// vault is a real OpenBao or Vault, and a session there.
type vault struct{ address, token string }

// errNone is the error of what is not there.
var errNone = errors.New("it is not there")

// upgrade is how long a store may take until it keeps versions, after it was mounted.
const upgrade = 30 * time.Second

// ask makes a request, and returns what the answer calls data, or auth.
func (v vault) ask(ctx context.Context, method, path string, body any) (map[string]any, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	for late := time.After(upgrade); ; {
		code, answer, err := v.send(ctx, method, path, text)
		switch {
		case err != nil:
			return nil, err
		case code == http.StatusNotFound:
			return nil, errNone
		case code/100 == 2:
			var said struct{ Data, Auth map[string]any }
			if len(answer) > 0 {
				err = json.Unmarshal(answer, &said)
			}
			if said.Auth != nil {
				return said.Auth, err
			}
			return said.Data, err
		case code != http.StatusBadRequest || !strings.Contains(string(answer), "Upgrading from non-versioned"):
			return nil, fmt.Errorf("%s %s/v1/%s is answered with %d: %s", method, v.address, path, code, answer)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-late:
			return nil, fmt.Errorf("%s: the store keeps no versions after %s", path, upgrade)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (v vault) send(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.address+"/v1/"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("X-Vault-Token", v.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, answer, err
}

type vaultProvider struct{}

type vaultModel struct {
	Address types.String `tfsdk:"address"`
	Token   types.String `tfsdk:"token"`
	JWT     []struct {
		Role  types.String `tfsdk:"role"`
		Mount types.String `tfsdk:"mount"`
		JWT   types.String `tfsdk:"jwt"`
	} `tfsdk:"auth_login_jwt"`
}

func newVault() provider.Provider { return vaultProvider{} }

func (vaultProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "vault"
}

func (vaultProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{
		Attributes: map[string]schema.Attribute{
			"address": schema.StringAttribute{Optional: true},
			"token":   schema.StringAttribute{Optional: true, Sensitive: true},
		},
		Blocks: map[string]schema.Block{"auth_login_jwt": schema.ListNestedBlock{NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
			"role":  schema.StringAttribute{Required: true},
			"mount": schema.StringAttribute{Optional: true},
			"jwt":   schema.StringAttribute{Optional: true, Sensitive: true},
		}}}},
	}
}

// Configure signs in with a token, or as auth_login_jwt says. The variables are those of the
// real provider.
func (vaultProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m vaultModel
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	v := vault{strings.TrimSuffix(cmp.Or(m.Address.ValueString(), os.Getenv("VAULT_ADDR")), "/"), cmp.Or(m.Token.ValueString(), os.Getenv("VAULT_TOKEN"))}
	if v.address == "" {
		p.Diagnostics.AddError("Configuring vault", "no address: set address, or VAULT_ADDR")
		return
	}
	for _, login := range m.JWT {
		auth, err := v.ask(ctx, http.MethodPost, "auth/"+cmp.Or(login.Mount.ValueString(), "jwt")+"/login", map[string]any{
			"role": login.Role.ValueString(), "jwt": cmp.Or(login.JWT.ValueString(), os.Getenv("TERRAFORM_VAULT_AUTH_JWT")),
		})
		if err != nil {
			p.Diagnostics.AddError("Signing in to vault", err.Error())
			return
		}
		v.token = str(auth, "client_token")
	}
	if v.token == "" {
		p.Diagnostics.AddError("Configuring vault", "no vault token set on Client")
		return
	}
	p.ResourceData = v
}

func (vaultProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (vaultProvider) Resources(context.Context) []func() resource.Resource {
	var all []func() resource.Resource
	for _, k := range vaultKinds() {
		all = append(all, func() resource.Resource { return &held{vaultKind: k} })
	}
	return all
}
