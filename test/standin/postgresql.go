package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/jackc/pgx/v5"
)

// hostaddrVariable is PostgreSQL's own: the address of a host whose name does
// not resolve here.
const hostaddrVariable = "PGHOSTADDR"

// server is a real PostgreSQL.
type server struct{ url string }

// do runs statements, all or none.
func (s server) do(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// has reports whether a query finds anything.
func (s server) has(ctx context.Context, query string, args ...any) (bool, error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	var found bool
	err = conn.QueryRow(ctx, "SELECT EXISTS ("+query+")", args...).Scan(&found)
	return found, err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

type postgresProvider struct{}

type postgresModel struct {
	Host     types.String `tfsdk:"host"`
	Port     types.Int64  `tfsdk:"port"`
	Database types.String `tfsdk:"database"`
	Username types.String `tfsdk:"username"`
	Password types.String `tfsdk:"password"`
	SSLMode  types.String `tfsdk:"sslmode"`
	Timeout  types.Int64  `tfsdk:"connect_timeout"`
}

func newPostgreSQL() provider.Provider { return postgresProvider{} }

func (postgresProvider) Metadata(_ context.Context, _ provider.MetadataRequest, p *provider.MetadataResponse) {
	p.TypeName = "postgresql"
}

func (postgresProvider) Schema(_ context.Context, _ provider.SchemaRequest, p *provider.SchemaResponse) {
	p.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"host":            schema.StringAttribute{Optional: true},
		"port":            schema.Int64Attribute{Optional: true},
		"database":        schema.StringAttribute{Optional: true},
		"username":        schema.StringAttribute{Optional: true},
		"password":        schema.StringAttribute{Optional: true, Sensitive: true},
		"sslmode":         schema.StringAttribute{Optional: true},
		"connect_timeout": schema.Int64Attribute{Optional: true},
	}}
}

func (postgresProvider) Configure(ctx context.Context, q provider.ConfigureRequest, p *provider.ConfigureResponse) {
	var m postgresModel
	p.Diagnostics.Append(q.Config.Get(ctx, &m)...)
	if p.Diagnostics.HasError() {
		return
	}
	host := m.Host.ValueString()
	if address := os.Getenv(hostaddrVariable); address != "" {
		host = address
	}
	u := url.URL{
		Scheme: "postgresql", User: url.UserPassword(m.Username.ValueString(), m.Password.ValueString()),
		Host: net.JoinHostPort(host, strconv.FormatInt(m.Port.ValueInt64(), 10)), Path: "/" + m.Database.ValueString(),
		RawQuery: url.Values{"sslmode": {m.SSLMode.ValueString()}, "connect_timeout": {strconv.FormatInt(m.Timeout.ValueInt64(), 10)}}.Encode(),
	}
	p.ResourceData = server{u.String()}
}

func (postgresProvider) DataSources(context.Context) []func() datasource.DataSource { return nil }

func (postgresProvider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		func() resource.Resource { return &relation{relationKind: schemaKind} },
		func() resource.Resource { return &relation{relationKind: roleKind} },
		func() resource.Resource { return &relation{relationKind: grantKind} },
	}
}

// relationKind is a kind of the database: what creates one, drops it, and tells
// whether it is there.
type relationKind struct {
	name       string
	attributes attributes
	id         func(asked map[string]any) string
	make, drop func(asked map[string]any) []string
	there      func(ctx context.Context, s server, asked map[string]any) (bool, error)
}

func str(asked map[string]any, name string) string {
	s, _ := asked[name].(string)
	return s
}

var schemaKind = relationKind{
	name:       "postgresql_schema",
	attributes: attributes{"id": computed(), "name": naming(), "owner": text()},
	id:         func(asked map[string]any) string { return str(asked, "name") },
	make: func(asked map[string]any) []string {
		return []string{"CREATE SCHEMA " + quote(str(asked, "name")) + " AUTHORIZATION " + quote(str(asked, "owner"))}
	},
	drop: func(asked map[string]any) []string {
		return []string{"DROP SCHEMA IF EXISTS " + quote(str(asked, "name"))}
	},
	there: func(ctx context.Context, s server, asked map[string]any) (bool, error) {
		return s.has(ctx, "SELECT FROM pg_namespace WHERE nspname = $1", str(asked, "name"))
	},
}

var roleKind = relationKind{
	name:       "postgresql_role",
	attributes: attributes{"id": computed(), "name": naming(), "login": truth(), "password": secret()},
	id:         func(asked map[string]any) string { return str(asked, "name") },
	make: func(asked map[string]any) []string {
		login := "NOLOGIN"
		if asked["login"] == true {
			login = "LOGIN"
		}
		return []string{fmt.Sprintf("CREATE ROLE %s %s PASSWORD %s", quote(str(asked, "name")), login, literal(str(asked, "password")))}
	},
	drop: func(asked map[string]any) []string {
		return []string{"DROP ROLE IF EXISTS " + quote(str(asked, "name"))}
	},
	there: func(ctx context.Context, s server, asked map[string]any) (bool, error) {
		return s.has(ctx, "SELECT FROM pg_roles WHERE rolname = $1", str(asked, "name"))
	},
}

var grantKind = relationKind{
	name: "postgresql_grant",
	attributes: attributes{
		"id": computed(), "database": naming(), "role": naming(), "schema": naming(), "object_type": naming(), "privileges": set(),
	},
	id: func(asked map[string]any) string {
		return strings.Join([]string{str(asked, "role"), str(asked, "database"), str(asked, "schema"), str(asked, "object_type")}, "_")
	},
	make: func(asked map[string]any) []string {
		var privileges []string
		list, _ := asked["privileges"].([]any)
		for _, p := range list {
			privileges = append(privileges, fmt.Sprint(p))
		}
		return []string{fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(privileges, ", "), granted(asked), quote(str(asked, "role")))}
	},
	drop: func(asked map[string]any) []string {
		return []string{fmt.Sprintf("REVOKE ALL ON %s FROM %s", granted(asked), quote(str(asked, "role")))}
	},
	there: func(ctx context.Context, s server, asked map[string]any) (bool, error) {
		return s.has(ctx, "SELECT FROM pg_roles, pg_namespace WHERE rolname = $1 AND nspname = $2", str(asked, "role"), str(asked, "schema"))
	},
}

// granted is what a grant is on.
func granted(asked map[string]any) string {
	if str(asked, "object_type") == "table" {
		return "ALL TABLES IN SCHEMA " + quote(str(asked, "schema"))
	}
	return "SCHEMA " + quote(str(asked, "schema"))
}
