package app

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/app/packages"
	"github.com/terrier-iac/terrier/internal/app/registryserver"
	"github.com/terrier-iac/terrier/internal/app/serving"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/machine"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/usedby"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/vault/pki"
	"github.com/terrier-iac/terrier/internal/web"
	"github.com/terrier-iac/terrier/internal/web/metacontroller"
)

// How long requests, and everything on top of the control plane, may continue
// after the stop was requested. The control plane has the rest of ten seconds.
const (
	stopHTTP = 2 * time.Second
	stopAll  = 3 * time.Second
)

// weaveGroup is the group of the Policy objects of the Weave policy agent.
const weaveGroup = "pac.weave.works"

// server is the HTTP server and where it is.
type server struct {
	listener net.Listener
	url      string
	ca       []byte
	cert     *serving.Certificate
	keeper   *pki.Keeper // of a certificate that a PKI signs; nil without one
}

// certificate is what the server shows to a client.
func (s *server) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if s.keeper == nil {
		return s.cert.Get(hello)
	}
	return s.keeper.Certificate(hello)
}

// serve starts the servers and controllers and blocks until ctx ends.
func (p *parts) serve(ctx context.Context) (err error) {
	direct, err := client.New(p.plane.rest(), client.Options{Scheme: newScheme(kinds.All())})
	if err != nil {
		return err
	}
	if err := ensureServerNamespace(ctx, direct); err != nil {
		return err
	}
	var unwanted []string
	for _, d := range p.leftOut.All() {
		unwanted = append(unwanted, d.Kind().Group)
	}
	if weaveOf(p.Cluster) == nil {
		unwanted = append(unwanted, weaveGroup)
	}
	if p.syncs, err = syncsSecrets(ctx, p, direct); err != nil {
		return err
	}
	if !p.syncs {
		unwanted = append(unwanted, externalsecret.Group)
	}
	definitions := crd.Without(unwanted)
	p.stamping = newStamping(p, direct)
	if p.Cluster == nil || p.Cluster.Definitions {
		p.progress("installing definitions")
		err = kube.InstallDefinitions(ctx, direct, definitions, sourcev1.GroupVersion.Group, noticesGroup, weaveGroup)
		if p.Cluster != nil { // the control plane in this process stamps changes itself
			err = errors.Join(err, p.stamping.Ensure(ctx))
		}
		if err == nil {
			refuseForeground(ctx, direct, p.log)
		}
	} else {
		err = kube.AwaitDefinitions(ctx, direct, definitions)
	}
	if err != nil {
		return err
	}
	if p.http, err = p.listenHTTP(); err != nil {
		return err
	}
	if err := certifyHTTP(ctx, p); err != nil {
		return errors.Join(err, p.http.listener.Close())
	}
	if p.forge, err = openForge(p); err != nil {
		return errors.Join(err, p.http.listener.Close())
	}
	defer func() { err = errors.Join(err, p.forge.Close()) }()
	p.auditLog.anchored(direct)
	p.others, err = openOthers(p)
	err = errors.Join(err, p.publish(ctx, direct))
	if p.members == nil {
		err = errors.Join(err, p.auditLog.begin(ctx, direct, p.Version))
	}
	if err == nil {
		p.alerts, err = p.openAlerts(ctx, direct)
	}
	if err != nil {
		return errors.Join(err, p.http.listener.Close())
	}
	handler, err := p.handler(ctx)
	if err != nil {
		return errors.Join(err, p.http.listener.Close())
	}
	p.reads.Serve(handler)
	p.progress("starting controllers")
	mgr, err := p.manager(ctx)
	if err == nil {
		err = p.controllers(ctx, mgr, direct)
	}
	if err == nil {
		err = awaitRights(p, mgr)
	}
	if err == nil {
		p.scraped, err = p.meters.Serve(mgr, p.Config.MetricsAddress)
	}
	if err != nil {
		return errors.Join(err, p.http.listener.Close())
	}
	return p.run(ctx, mgr, p.withAgents(handler))
}

// run runs the manager and the HTTP server until ctx ends or one of them does.
func (p *parts) run(ctx context.Context, mgr ctrl.Manager, handler http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := web.Server(handler, &tls.Config{GetCertificate: p.http.certificate, MinVersion: tls.VersionTLS12}, p.log)
	ended := make(chan error, 2)
	go func() {
		if err := srv.ServeTLS(p.http.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			ended <- fmt.Errorf("serving HTTP: %w", err)
			return
		}
		ended <- nil
	}()
	go func() { ended <- inTime(ctx, p.log, mgr.Start(ctx)) }()
	said := make(chan error, 1)
	go func() { said <- p.ready(ctx, mgr) }()

	var errs []error
	running := 2
	for running > 0 {
		select {
		case err := <-said:
			if err != nil && ctx.Err() == nil {
				errs = append(errs, err)
				cancel()
			}
			said = nil
		case err := <-ended:
			running--
			errs = append(errs, err)
			cancel()
		case <-ctx.Done():
			late := time.After(stopAll)
			stop, done := context.WithTimeout(context.WithoutCancel(ctx), stopHTTP)
			if err := srv.Shutdown(stop); err != nil {
				errs = append(errs, ignoreDeadline(err), srv.Close())
			}
			done()
			for ; running > 0; running-- {
				select {
				case err := <-ended:
					errs = append(errs, err)
				case <-late:
					// An API server that no longer answers blocks them; the process ends.
					p.log.Warn(endedLate)
					return errors.Join(errs...)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// endedLate is logged when a stop does not wait for the controllers any longer.
const endedLate = "controllers did not end in time"

// inTime is the error with which the manager ended. That a reconcile went on for longer
// than stopManager after a stop is none: the next process takes over whatever it did,
// as after a crash, and a stop that was asked for succeeds.
func inTime(ctx context.Context, log *slog.Logger, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		log.Warn(endedLate)
		return nil
	}
	return err
}

func ignoreDeadline(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // an open stream; it is closed
	}
	return err
}

// ready reports that everything answers, once it does.
func (p *parts) ready(ctx context.Context, mgr ctrl.Manager) error {
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return ctx.Err()
	}
	select {
	case <-p.board.Full():
	case <-ctx.Done():
		return ctx.Err()
	}
	p.registerWebhooks(ctx, mgr.GetClient())
	reachable, err := p.plane.reachable()
	if err != nil {
		return err
	}
	if p.members != nil {
		if err := announce(ctx, p.members, p.Cluster.Address, p.http.listener.Addr()); err != nil {
			return err
		}
	}
	answers := p.others.ready(reachable)
	p.health.ready.Store(&answers)
	context.AfterFunc(ctx, func() { p.health.ready.Store(nil) })
	r := Ready{
		Ready: true, Kubeconfig: p.plane.Kubeconfig(), API: "https://" + p.plane.Address(), HTTP: p.http.url,
		Metrics: p.scraped, DataDir: p.Config.DataDir, Isolation: sandbox.Probe().Level.String(), Example: p.forge.Info(),
	}
	if p.Config.Output == "json" {
		if err := json.NewEncoder(p.Stdout).Encode(r); err != nil {
			return err
		}
	} else if err := p.printAddresses(r); err != nil {
		return err
	}
	if p.Options.Ready == nil {
		return nil
	}
	return p.Options.Ready(ctx, r, p.plane.Config())
}

// printAddresses prints the addresses and what to try, and ready on its own line.
func (p *parts) printAddresses(r Ready) error {
	var listed []string
	for _, d := range p.kinds.All() {
		listed = append(listed, dialect.ResourceOf(d).GroupResource().String())
	}
	_, err := fmt.Fprintf(p.Stdout, `
  Kubernetes API  %s
  pages and API   %s
  kubeconfig      %s
  isolation       level %q for runs

  export KUBECONFIG=%s
  %s get %s -A
  %s get -A
  %s explain -f STACK.yaml
  %s ui                      print a link that signs you in

ready
`, r.API, r.HTTP, r.Kubeconfig, r.Isolation, r.Kubeconfig, kubectl(p.Program), strings.Join(listed, ","), p.Program, p.Program, p.Program)
	return err
}

// listenHTTP opens the HTTP address with the control plane's certificate.
func (p *parts) listenHTTP() (*server, error) {
	l, err := listen(p.Config.HTTPAddress, p.dir("http-port"), p.Cluster != nil)
	if err != nil {
		return nil, err
	}
	s := &server{listener: l, url: "https://" + l.Addr().String()}
	if hosts := p.hosts(); len(hosts) > 0 {
		_, port, _ := net.SplitHostPort(l.Addr().String()) // always valid
		s.url = "https://" + net.JoinHostPort(hosts[0], port)
	}
	first, ca, err := p.plane.Certificate()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	newest := func() (tls.Certificate, error) {
		c, _, err := p.plane.Certificate()
		return c, err
	}
	s.cert, s.ca = serving.New(first, newest, p.Now, p.log), ca
	return s, nil
}

// publish stores the address of the HTTP API for the command line, and tells
// controllers that this cluster is in use.
func (p *parts) publish(ctx context.Context, c client.Client) error {
	u, err := toUnstructured(&corev1.ConfigMap{
		TypeMeta:   typeMeta("v1", "ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: access.ServerConfigMap},
		Data:       map[string]string{access.ServerURLKey: p.http.url, access.ServerCAKey: string(p.http.ca)},
	})
	if err != nil {
		return err
	}
	if err := kube.Apply(ctx, c, u); err != nil {
		return err
	}
	if p.Cluster == nil {
		return reserve(ctx, c, leaseOfControllers, p.keys.ID())
	}
	return nil
}

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

func toUnstructured(o client.Object) (*unstructured.Unstructured, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var u unstructured.Unstructured
	if err := json.Unmarshal(b, &u.Object); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return &u, nil
}

// handler is the HTTP API with artifacts and registry.
func (p *parts) handler(ctx context.Context) (http.Handler, error) {
	kubeClient, err := access.NewClient(p.plane.Config(), p.kinds)
	if err != nil {
		return nil, err
	}
	cluster, err := access.NewKubeAuth(p.plane.Config(), p.kinds)
	if err != nil {
		return nil, err
	}
	auth := access.NewBoundedAuth(cluster, p.Now)
	namespaces := query.NamespacesIn(kubeClient)
	registry, err := openRegistry(p, namespaces)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(p.http.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	ready, err := p.plane.reachable()
	if err != nil {
		return nil, err
	}
	if p.webhookSecret, err = p.keys.Derive("terrier path of admission webhooks"); err != nil {
		return nil, err
	}
	hooks, err := admissionHandlers(p.plane.rest(), p.webhookSecret, tellerOf(&p.judges))
	if err != nil {
		return nil, err
	}
	p.records = query.NewBlobs(blobBytes{p.blobs}, p.runs, followEvery)
	p.records.Cipher = &encryption.Cipher{Keys: p.opened.StateKeys}
	stacks := query.New(kubeClient, p.kinds, p.records, p.Now)
	p.uses = usedby.New(p.records, p.log)
	p.board = query.NewBoard(query.BoardOptions{Kinds: p.kinds, TenantLabel: p.Config.TenantLabel, Now: p.Now, Uses: p.uses})
	p.figures = query.NewFigures(p.board, p.Now)
	o := web.Options{
		Kinds:  p.kinds,
		Stacks: stacks, Former: stacks.OfFormer(), Board: p.board, UsedBy: p.uses, Details: query.NewDetails(stacks, p.records, p.records), Sources: query.NewSources(kubeClient, p.board), Figures: p.figures, Graphs: query.NewWholeGraph(p.board), Version: p.Version,
		Hosts: append(loopbackHosts(host), p.hosts()...), Log: p.log, Now: p.Now, Ready: ready, Following: p.meters.Following,
		Retained: command.NewRetained(blobBytes{p.blobs}, kubeClient, p.kinds),
		Audit:    p.audits, AuditLog: query.NewAuditLog(p.auditLog.Log, p.auditLog.anchor, namespaces), Notices: p.alerts.sent(namespaces),
		Artifacts: source.NewArtifactHandler(p.artifacts, p.key), Registry: registry, Admission: hooks,
		Hooks:  metacontroller.NewHandler(hooked(kubeClient, p.kinds), p.log),
		Limits: web.Limits{StateBytes: machine.Memory(os.DirFS("/")) / statesShare},
	}
	if err := p.fillAccess(ctx, &o, p.reads.Known(regtoken.Guard{Authority: p.pulls(auth)})); err != nil {
		return nil, err
	}
	if p.identities != nil {
		o.Identity = p.identities
		o.Hosts = append(o.Hosts, p.identities.Host())
	}
	if err := p.fillPages(&o, kubeClient); err != nil {
		return nil, err
	}
	if err := openPackages(ctx, p, &o, registry); err != nil {
		return nil, err
	}
	p.others.serve(&o)
	return web.New(o)
}

// statesShare is the part of the memory that requests of users may take which hold a whole state
// or plan: a third. The rest is for the controllers, and for what the collector has not freed yet.
const statesShare = 3

// openRegistry opens the registry for what users push. It is on the disk of the records and of
// the audit log, and leaves room to them. Without now, all namespaces of a name are one.
func openRegistry(p *parts, now query.Namespaces) (*source.Registry, error) {
	namespaces, err := access.NewNamespaces(p.plane.Config())
	if err != nil {
		return nil, err
	}
	disk := room.Of(p.dir("registry"))
	o := source.RegistryOptions{Now: p.Now, Room: func() (source.RegistryClaim, error) { return disk.Claim(0) }}
	of := quotaOf(p).Of(namespaces.Namespace, p.Now, p.log)
	o.Quota = func(ctx context.Context, namespace string) (source.RegistryQuota, error) {
		if !p.Config.Registry { // without the registry of modules the server may not read namespaces
			return source.RegistryQuota{Bytes: int64(p.Config.QuotaSize) << 20, Raise: "--registry-quota-size"}, nil
		}
		q, err := of(ctx, namespace)
		return source.RegistryQuota{Bytes: q.Bytes, Raise: q.Raise}, err
	}
	if now != nil {
		o.Namespace = func(ctx context.Context, name string) (source.RegistryNamespace, error) {
			found, err := now(ctx, name)
			return source.RegistryNamespace{UID: found.UID, Created: found.Created}, err
		}
	}
	o.Aside = func(namespace, now string) {
		p.log.Warn("the artifacts that a former namespace left are hidden from the users of the one that has its name: pull them with a right in all namespaces", "namespace", namespace, "repositories", "oci://"+p.http.listener.Addr().String()+"/"+now+"/…")
	}
	return source.NewRegistry(p.dir("registry"), o)
}

// quotaOf is what a namespace may have in a registry unless its annotations say otherwise.
func quotaOf(p *parts) packages.Quota {
	return packages.Quota{MiB: p.Config.QuotaSize, Versions: p.Config.QuotaVersions}
}

// openPackages opens the registry of modules and providers, unless it is off. Controllers
// that share stacks have data directories of their own, so that there it needs a storage
// that all of them have.
func openPackages(ctx context.Context, p *parts, o *web.Options, inside *source.Registry) error {
	if !p.Config.Registry {
		return nil
	}
	if p.members != nil && p.Config.RegistryStorage == "" {
		p.log.Info("no registry of modules and providers: controllers that share stacks need --registry-storage for it")
		return nil
	}
	key, err := p.keys.Derive(packages.KeyPurpose)
	if err != nil {
		return err
	}
	namespaces, err := access.NewNamespaces(p.plane.Config())
	if err != nil {
		return err
	}
	if o.Audit, err = registryserver.Counting(p.audits, p.meters.Registry); err != nil {
		return err
	}
	out, err := p.outbound()
	if err != nil {
		return err
	}
	p.packages, err = packages.Open(ctx, packages.Options{
		Out: out, KnownHosts: p.Config.KnownHosts,
		Storage: p.Config.RegistryStorage, Settings: p.Config.RegistryConfig, Dir: p.dir("packages"), Scratch: p.dir("scratch"), Key: key,
		Allow: p.Config.AllowHosts, Auth: o.Recent, Inside: inside, Audit: o.Audit, Namespace: namespaces.Namespace, Quota: quotaOf(p), Registerer: p.meters.Registry, Environ: p.Environ, Log: p.log, Now: p.Now,
	})
	if err == nil {
		o.Catalog, o.Authority = p.packages.Catalog, p.http.ca
		o.Uses = usedby.Published{Index: p.uses, Hosts: p.reads.Hosts}
		o.Packages, o.Registry = p.packages, p.packages // the repositories beside those that users push
		o.Tokens, o.LoginLife = regtoken.NewBook(p.blobs, namespaces.Namespace, p.Now, p.log), p.Config.RegistryLogin
	}
	return err
}

// pulls wraps auth so that sources can pull from the built-in registry.
func (p *parts) pulls(auth web.Auth) pulls {
	return pulls{Auth: auth, key: p.key, host: p.http.listener.Addr().String()}
}

// followEvery is how often a followed log is read.
const followEvery = 250 * time.Millisecond
