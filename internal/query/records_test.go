package query_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/recordstest"
)

func TestBlobsAreRecords(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	recordstest.Run(t, func(_ *testing.T, kept *query.Blobs) query.Records { return kept })
}
