package patch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/plan"
)

func changed(attributes ...drift.Attribute) drift.Resource {
	return drift.Resource{Address: "world_thing.a", Type: "world_thing", Name: "a", How: drift.Changed, Action: plan.Update, Attributes: attributes}
}

func attribute(path string, configured, real any) drift.Attribute {
	return drift.Attribute{Path: path, Configured: configured, Real: real}
}

func inModule(module string, r drift.Resource) drift.Resource {
	r.Module, r.Address = module, module+"."+r.Address
	return r
}

// files are written with a line for each name: -- main.tf.
func files(archive string) map[string][]byte {
	out := map[string][]byte{}
	name := "main.tf"
	for line := range strings.Lines(archive) {
		if at, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSpace(at)
			continue
		}
		out[name] = append(out[name], line...)
	}
	return out
}

// What stands around an edit stays as it was: comments, order, formatting.
func TestPropose(t *testing.T) {
	for name, tt := range map[string]struct {
		before   string
		module   Module
		resource drift.Resource
		ignore   bool
		after    string // of the files that change
		open     string // why it is not edited, in part
		where    string
	}{
		"a literal": {
			before:   "# the first\nresource \"world_thing\" \"a\" {\n  name   = \"a\" # its name\n  size   =   3   # of it\n  value  = \"x\"\n}\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "# the first\nresource \"world_thing\" \"a\" {\n  name   = \"a\" # its name\n  size   =   5   # of it\n  value  = \"x\"\n}\n",
		},
		"a number that is written as a text": {
			before:   "resource \"world_thing\" \"a\" {\n  size = \"3\"\n}\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "resource \"world_thing\" \"a\" {\n  size = 5\n}\n",
		},
		"a literal that is not what the plan says": {
			before:   "resource \"world_thing\" \"a\" {\n  size = 4\n}\n",
			resource: changed(attribute("size", 3, 5)),
			open:     "The configuration says 4 here", where: "main.tf:2",
		},
		"an attribute that is not set": {
			before:   "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n",
			resource: changed(attribute("size", 1, 5)),
			after:    "resource \"world_thing\" \"a\" {\n  name = \"a\"\n  size = 5\n}\n",
		},
		"an attribute of an empty block": {
			before:   "resource \"world_thing\" \"a\" {}\n",
			resource: changed(attribute("value", nil, "x")),
			after:    "resource \"world_thing\" \"a\" {\n  value = \"x\"\n}\n",
		},
		"an attribute that is there no more": {
			before:   "resource \"world_thing\" \"a\" {\n  name = \"a\"\n  # why\n  value = \"x\" # because\n}\n",
			resource: changed(attribute("value", "x", nil)),
			after:    "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n",
		},
		"a text with what the language would read": {
			before:   "resource \"world_thing\" \"a\" {\n  value = \"x\"\n}\n",
			resource: changed(attribute("value", "x", "${b} \"%{c}\"\n")),
			after:    "resource \"world_thing\" \"a\" {\n  value = \"$${b} \\\"%%{c}\\\"\\n\"\n}\n",
		},
		"an entry of a map": {
			before:   "resource \"world_thing\" \"a\" {\n  tags = {\n    a     = \"1\" # one\n    \"b c\" = \"2\"\n  }\n}\n",
			resource: changed(attribute("tags.a", "1", "9"), attribute(`tags["b c"]`, "2", nil), attribute("tags.d", nil, "4")),
			after:    "resource \"world_thing\" \"a\" {\n  tags = {\n    a     = \"9\" # one\n    d = \"4\"\n  }\n}\n",
		},
		"an entry of a map on one line": {
			before:   "resource \"world_thing\" \"a\" {\n  tags = { a = \"1\" }\n}\n",
			resource: changed(attribute(`tags["x y"]`, nil, "4")),
			after:    "resource \"world_thing\" \"a\" {\n  tags = { a = \"1\", \"x y\" = \"4\" }\n}\n",
		},
		"a map that is not set": {
			before:   "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n",
			resource: changed(attribute("tags.a", nil, "1"), attribute(`tags["b c"]`, nil, "2")),
			after:    "resource \"world_thing\" \"a\" {\n  name = \"a\"\n  tags = {\n    a     = \"1\"\n    \"b c\" = \"2\"\n  }\n}\n",
		},
		"an element of a list, and one more": {
			before:   "resource \"world_thing\" \"a\" {\n  ports = [80, 443]\n}\n",
			resource: changed(attribute("ports[1]", 443, 8443), attribute("ports[2]", nil, 22)),
			after:    "resource \"world_thing\" \"a\" {\n  ports = [80, 8443, 22]\n}\n",
		},
		"one more element of a list": {
			before:   "resource \"world_thing\" \"a\" {\n  ports = [80]\n}\n",
			resource: changed(attribute("ports[1]", nil, 22)),
			after:    "resource \"world_thing\" \"a\" {\n  ports = [80, 22]\n}\n",
		},
		"an attribute of a nested block": {
			before:   "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n  disk {\n    size = 4\n  }\n}\n",
			resource: changed(attribute("disk[1].size", 4, 8)),
			after:    "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n  disk {\n    size = 8\n  }\n}\n",
		},
		"nested blocks in another order than the plan has": {
			before:   "resource \"world_thing\" \"a\" {\n  disk {\n    size = 4\n  }\n  disk {\n    size = 3\n  }\n}\n",
			resource: changed(attribute("disk[1].size", 4, 8)),
			open:     "which is not the value of the plan", where: "main.tf:6",
		},
		"a block that something else added": {
			before:   "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n}\n",
			resource: changed(attribute("disk[1].name", nil, "extra"), attribute("disk[1].size", nil, 9)),
			after:    "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n  disk {\n    name = \"extra\"\n    size = 9\n  }\n}\n",
		},
		"a block that something else removed": {
			before:   "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n  disk {\n    size = 9\n  }\n}\n",
			resource: changed(attribute("disk[1].size", 9, nil)),
			after:    "resource \"world_thing\" \"a\" {\n  disk {\n    size = 3\n  }\n}\n",
		},
		"a dynamic block": {
			before:   "resource \"world_thing\" \"a\" {\n  dynamic \"disk\" {\n    for_each = [1]\n    content {}\n  }\n}\n",
			resource: changed(attribute("disk[0].size", 9, 8)),
			open:     "A dynamic block makes it", where: "main.tf:2",
		},
		"a policy in jsonencode": {
			before:   "resource \"world_thing\" \"a\" {\n  policy = jsonencode({\n    Version = \"1\" # of it\n    Statement = [{ Effect = \"Allow\" }]\n  })\n}\n",
			resource: changed(attribute("policy(json).Statement[0].Effect", "Allow", "Deny")),
			after:    "resource \"world_thing\" \"a\" {\n  policy = jsonencode({\n    Version = \"1\" # of it\n    Statement = [{ Effect = \"Deny\" }]\n  })\n}\n",
		},
		"an expression": {
			before:   "resource \"world_thing\" \"a\" {\n  size = 1 + 2\n}\n",
			resource: changed(attribute("size", 3, 5)),
			open:     "It is the expression 1 + 2", where: "main.tf:2",
		},
		"what another resource gives": {
			before:   "resource \"world_thing\" \"a\" {\n  value = world_thing.b.id\n}\n",
			resource: changed(attribute("value", "x", "y")),
			open:     "which another resource or module gives", where: "main.tf:2",
		},
		"the default of a variable": {
			before:   "variable \"size\" {\n  default = 3 # small\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "variable \"size\" {\n  default = 5 # small\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
		},
		"a variable that a validation of its own checks": {
			before:   "variable \"size\" {\n  default = 3\n  validation {\n    condition     = var.size > 0\n    error_message = \"size: ${var.size} is too small.\"\n  }\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "variable \"size\" {\n  default = 5\n  validation {\n    condition     = var.size > 0\n    error_message = \"size: ${var.size} is too small.\"\n  }\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
		},
		"a variable that others use as well": {
			before:   "variable \"size\" {\n  default = 3\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\nresource \"world_thing\" \"b\" {\n  size = var.size\n}\n",
			resource: changed(attribute("size", 3, 5)),
			open:     "which is used in 2 places (main.tf:5, main.tf:8)", where: "main.tf:5",
		},
		"a variable that the stack gives": {
			before:   "variable \"size\" {\n  default = 1\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
			module:   Module{Fields: map[string]string{"size": "spec.vars of the stack"}},
			resource: changed(attribute("size", 3, 5)),
			open:     "The variable size gets its value there. Set it to 5", where: "spec.vars of the stack",
		},
		"a variable of a file that the stack names": {
			before:   "variable \"size\" {}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n-- env/prod.tfvars\n# production\nsize = 3 # few\n-- terraform.tfvars\nsize = 1\n",
			module:   Module{VarFiles: []string{"env/prod.tfvars"}},
			resource: changed(attribute("size", 3, 5)),
			after:    "-- env/prod.tfvars\n# production\nsize = 5 # few\n",
		},
		"a variable of terraform.tfvars": {
			before:   "variable \"size\" {\n  default = 1\n}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n-- terraform.tfvars\nsize = 3\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "-- terraform.tfvars\nsize = 5\n",
		},
		"a part of a local": {
			before:   "locals {\n  cfg = { a = { size = 3 } } # all\n}\nresource \"world_thing\" \"a\" {\n  size = local.cfg[\"a\"].size\n}\n",
			resource: changed(attribute("size", 3, 5)),
			after:    "locals {\n  cfg = { a = { size = 5 } } # all\n}\nresource \"world_thing\" \"a\" {\n  size = local.cfg[\"a\"].size\n}\n",
		},
		"a resource of a module in the source, by the argument of its call": {
			before:   "module \"m\" {\n  source = \"./mod\"\n  size   = 3\n}\n-- mod/main.tf\nvariable \"size\" {}\nresource \"world_thing\" \"a\" {\n  size = var.size\n}\n",
			resource: inModule("module.m", changed(attribute("size", 3, 5))),
			after:    "module \"m\" {\n  source = \"./mod\"\n  size   = 5\n}\n",
		},
		"a resource of a module elsewhere": {
			before:   "module \"m\" {\n  source = \"terraform-aws-modules/vpc/aws\"\n}\n",
			resource: inModule("module.m", changed(attribute("size", 3, 5))),
			open:     "Its module is not in this source: main.tf:1 calls terraform-aws-modules/vpc/aws",
		},
		"a module that is called with for_each": {
			before:   "module \"m\" {\n  source   = \"./mod\"\n  for_each = toset([\"x\"])\n}\n-- mod/main.tf\nresource \"world_thing\" \"a\" {\n  size = 3\n}\n",
			resource: inModule(`module.m["x"]`, changed(attribute("size", 3, 5))),
			open:     "It is one of several instances",
		},
		"a resource that is gone": {
			before:   "resource \"world_thing\" \"b\" {\n  name = \"b\"\n}\n\n# the thing\nresource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n\noutput \"x\" {\n  value = 1\n}\n",
			resource: drift.Resource{Address: "world_thing.a", Type: "world_thing", Name: "a", How: drift.Absent, Action: plan.Create},
			after:    "resource \"world_thing\" \"b\" {\n  name = \"b\"\n}\n\noutput \"x\" {\n  value = 1\n}\n",
		},
		"a resource that is gone, and that others refer to": {
			before:   "resource \"world_thing\" \"a\" {\n  name = \"a\"\n}\n\noutput \"x\" {\n  value = world_thing.a.id\n}\n",
			resource: drift.Resource{Address: "world_thing.a", Type: "world_thing", Name: "a", How: drift.Absent, Action: plan.Create},
			open:     "Something else refers to it", where: "main.tf:6",
		},
		"one of several instances": {
			before:   "resource \"world_thing\" \"a\" {\n  count = 2\n  size = 3\n}\n",
			resource: func() drift.Resource { r := changed(attribute("size", 3, 5)); r.Keyed = true; return r }(),
			open:     "It is one of several instances", where: "main.tf:1",
		},
		"a sensitive value": {
			before:   "resource \"world_thing\" \"a\" {\n  secret = \"x\"\n}\n",
			resource: changed(drift.Attribute{Path: "secret", Configured: "x", Real: "y", Sensitive: true}),
			open:     "Its value is sensitive",
		},
		"a value that holds a secret": {
			before:   "resource \"world_thing\" \"a\" {\n  value = \"x\"\n}\n",
			resource: changed(attribute("value", "x", "a"+plan.Mask)),
			open:     "Its value is sensitive",
		},
		"a resource that the plan destroys": {
			before:   "",
			resource: drift.Resource{Address: "world_thing.a", Type: "world_thing", Name: "a", How: drift.Other, Action: plan.Delete},
			open:     "The plan would delete it",
		},
		"a resource of no file": {
			before:   "",
			resource: changed(attribute("size", 3, 5)),
			open:     `No file of this module has the block resource "world_thing" "a"`,
		},
		"ignored from now on": {
			before:   "resource \"world_thing\" \"a\" {\n  size = 3\n  tags = {}\n}\n",
			resource: changed(attribute("size", 3, 5), attribute("tags.x", nil, "1"), attribute("disk[0].size", 1, 2)),
			ignore:   true,
			after:    "resource \"world_thing\" \"a\" {\n  size = 3\n  tags = {}\n\n  lifecycle {\n    ignore_changes = [size, tags.x, disk]\n  }\n}\n",
		},
		"ignored besides others": {
			before:   "resource \"world_thing\" \"a\" {\n  lifecycle {\n    # why\n    ignore_changes = [value] # more\n  }\n}\n",
			resource: changed(attribute("size", 3, 5), attribute("value", "x", "y")),
			ignore:   true,
			after:    "resource \"world_thing\" \"a\" {\n  lifecycle {\n    # why\n    ignore_changes = [value, size] # more\n  }\n}\n",
		},
		"ignored, in a lifecycle without a list": {
			before:   "resource \"world_thing\" \"a\" {\n  lifecycle {\n    prevent_destroy = true\n  }\n}\n",
			resource: changed(attribute("size", 3, 5)),
			ignore:   true,
			after:    "resource \"world_thing\" \"a\" {\n  lifecycle {\n    prevent_destroy = true\n    ignore_changes = [size]\n  }\n}\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := tt.module
			m.Files = files(tt.before)
			got, err := Propose(m, Wish{Resources: []drift.Resource{tt.resource}, IgnoreChanges: tt.ignore})
			if err != nil {
				t.Fatal(err)
			}
			if tt.open != "" {
				if len(got.Open) == 0 || !strings.Contains(got.Open[len(got.Open)-1].Why, tt.open) || tt.where != "" && got.Open[0].Where != tt.where {
					t.Errorf("open is %+v with edits %+v, want %q at %q", got.Open, got.Edits, tt.open, tt.where)
				}
				if len(got.Files) > 0 {
					t.Errorf("files change that should not: %q", got.Files)
				}
				return
			}
			if d := cmp.Diff(got.Files, files(tt.after)); d != "" || len(got.Open) > 0 || len(got.Edits) == 0 {
				t.Errorf("%s\nedits %+v, open %+v", d, got.Edits, got.Open)
			}
		})
	}
}

// A file that the engine could not read either is refused by its name.
func TestProposeReadsBrokenFiles(t *testing.T) {
	_, err := Propose(Module{Files: files("resource {")}, Wish{Resources: []drift.Resource{changed(attribute("size", 3, 5))}})
	if err == nil || !strings.Contains(err.Error(), "main.tf") {
		t.Errorf("Propose() = %v, want an error that names the file", err)
	}
}

func TestPaths(t *testing.T) {
	for _, path := range []string{"size", "tags.a", `tags["a b"]`, "rule[0].port", `m["x]\"y"].a[3]`, "policy(json).Statement[0].Action"} {
		steps, ok := parsePath(path)
		if got := pathOf(steps); !ok || got != path {
			t.Errorf("pathOf(parsePath(%q)) = %q, %v", path, got, ok)
		}
	}
	for _, path := range []string{"", "[0]", "a[", `a["x`, "a b"} {
		if steps, ok := parsePath(path); ok {
			t.Errorf("parsePath(%q) = %v", path, steps)
		}
	}
}
