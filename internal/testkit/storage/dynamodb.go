package storage

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// lockKey is the key of a table for the locks of the engine.
const lockKey = "LockID"

// DynamoDB is a server of tables whose key is LockID. It answers as DynamoDB does, and knows
// the two conditions with which the engine locks and unlocks. A table takes a while until
// it can be used.
type DynamoDB struct {
	URL string
	Writes

	mu    sync.Mutex
	made  map[string]map[string]any // tables, as DescribeTable shows them
	items map[string]map[string]item
}

// item is one item of a table: values by the names of attributes and of types.
type item map[string]map[string]any

func (i item) text(name string) string {
	s, _ := i[name]["S"].(string)
	return s
}

// NewDynamoDB starts a server for one test.
func NewDynamoDB(tb testing.TB) *DynamoDB {
	d := &DynamoDB{made: map[string]map[string]any{}, items: map[string]map[string]item{}}
	at := httptest.NewServer(d)
	tb.Cleanup(at.Close)
	d.URL = at.URL
	return d
}

// Lock is what the holder of the lock on BUCKET/KEY says about itself; empty if the state
// is not locked.
func (d *DynamoDB) Lock(table, state string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.items[table][state].text("Info")
}

// Has reports whether a table has an item.
func (d *DynamoDB) Has(table, key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.items[table][key]
	return ok
}

// request is as much of a request as the engine and the plug-in send.
type request struct {
	TableName           string
	BillingMode         string
	KeySchema           any
	Item, Key           item
	ConditionExpression string
	Values              item `json:"ExpressionAttributeValues"`
}

// ServeHTTP implements http.Handler.
func (d *DynamoDB) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	if operation != "DescribeTable" && operation != "GetItem" {
		d.add(r, operation+" "+in.TableName)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	out, failed := d.answer(operation, in)
	if failed != "" {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]any{"__type": "com.amazonaws.dynamodb.v20120810#" + failed, "message": operation + " of the table " + in.TableName}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// answer returns an answer, or what DynamoDB calls a failure.
func (d *DynamoDB) answer(operation string, in request) (out map[string]any, failed string) {
	name := in.TableName
	t := d.made[name]
	switch {
	case operation == "CreateTable" && t == nil:
		if in.BillingMode != "PAY_PER_REQUEST" {
			return nil, "ValidationException"
		}
		d.made[name] = map[string]any{"TableName": name, "TableStatus": "CREATING", "KeySchema": in.KeySchema}
		d.items[name] = map[string]item{}
		return map[string]any{"TableDescription": d.made[name]}, ""
	case t == nil:
		return nil, "ResourceNotFoundException"
	case operation == "CreateTable":
		return nil, "ResourceInUseException"
	case operation == "DescribeTable":
		out = map[string]any{"TableName": name, "TableStatus": t["TableStatus"], "KeySchema": t["KeySchema"]}
		t["TableStatus"] = "ACTIVE"
		return map[string]any{"Table": out}, ""
	case operation == "DeleteTable":
		delete(d.made, name)
		delete(d.items, name)
		return map[string]any{}, ""
	case t["TableStatus"] != "ACTIVE":
		return nil, "ResourceNotFoundException"
	}
	return d.ofItem(operation, in)
}

func (d *DynamoDB) ofItem(operation string, in request) (out map[string]any, failed string) {
	of := in.Key
	if operation == "PutItem" {
		of = in.Item
	}
	key, items := of.text(lockKey), d.items[in.TableName]
	is, there := items[key]
	switch in.ConditionExpression {
	case "":
	case "attribute_not_exists(" + lockKey + ")":
		if there {
			return nil, "ConditionalCheckFailedException"
		}
	case "Info = :info":
		if !there || is.text("Info") != in.Values.text(":info") {
			return nil, "ConditionalCheckFailedException"
		}
	default:
		return nil, "ValidationException"
	}
	switch {
	case key == "":
		return nil, "ValidationException"
	case operation == "PutItem":
		items[key] = in.Item
	case operation == "DeleteItem":
		delete(items, key)
	case operation != "GetItem":
		return nil, "ValidationException"
	case there:
		return map[string]any{"Item": is}, ""
	}
	return map[string]any{}, ""
}
