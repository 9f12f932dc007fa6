// Package quiet keeps the etcd client inside kube-apiserver from writing to
// standard error, where it reports every request that a normal end cuts off.
//
// That client makes its logger when its package is initialised, from a variable
// of another package, and takes no other. So this is done by an import: packages
// are initialised in the order of their paths as soon as what they import is,
// and this one imports nothing but that variable's package.
package quiet

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() {
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = nil
}
