package service_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/service/recordstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBlobsAreRecords(t *testing.T) {
	recordstest.Run(t, func(_ *testing.T, kept *service.Blobs) service.Records { return kept })
}
