package service_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/service"
	"github.com/terrier-iac/terrier/internal/service/recordstest"
)

func TestBlobsAreRecords(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	recordstest.Run(t, func(_ *testing.T, kept *service.Blobs) service.Records { return kept })
}
