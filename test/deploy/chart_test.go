//go:build deploy

// Package deploy_test renders the chart with the real helm, and builds the
// programs of the image.
package deploy_test

import (
	"bytes"
	stdjson "encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tallyman-dev/tallyman/internal/config"
)

const (
	helmVersion = "v3.22.0"
	chart       = "../../deploy/chart/tallyman"
	crds        = "../../deploy/crds"
)

var update = flag.Bool("update", false, "write the copy of the CRDs, the manifests and the golden files")

func helm(args ...string) (string, error) {
	cmd := exec.Command("go", append([]string{"run", "helm.sh/helm/v3/cmd/helm@" + helmVersion}, args...)...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		return errOut.String(), err
	}
	return string(out), nil
}

func render(t *testing.T, release string, args ...string) string {
	t.Helper()
	out, err := helm(append([]string{"template", release, chart, "-n", "tallyman", "--kube-version", "1.34.0"}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

func hold(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		t.Errorf("%s is not what is rendered (%v); run go test -tags deploy ./test/deploy -update", path, err)
	}
}

func TestGenerated(t *testing.T) {
	files, err := filepath.Glob(crds + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		hold(t, filepath.Join(chart, "files", filepath.Base(f)), string(b))
	}
	if copies, _ := filepath.Glob(chart + "/files/*.yaml"); len(copies) != len(files) {
		t.Errorf("%d copies of %d CRDs", len(copies), len(files))
	}
	hold(t, "../../deploy/manifests/tallyman.yaml", manifestHeader+render(t, "tallyman"))
}

const manifestHeader = `# The chart with its default values, for those without Helm:
#   kubectl create namespace tallyman
#   sed 's|registry.example/tallyman:0.1.0-dev|IMAGE|' deploy/manifests/tallyman.yaml | kubectl apply -n tallyman -f -
# IMAGE is made by deploy/Dockerfile. Other values: helm template tallyman deploy/chart/tallyman -n tallyman --set ...
# Generated: go test -tags deploy ./test/deploy -update
`

func TestRendering(t *testing.T) {
	written := map[string]bool{} // keys of tallyman.yaml
	files, _ := filepath.Glob("testdata/values-*.yaml")
	rendered := 0
	for _, values := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(values), "values-"), ".yaml")
		t.Run(name, func(t *testing.T) {
			got := render(t, "tallyman", "-f", values)
			hold(t, "testdata/golden-"+name+".yaml", got)
			checkConfig(t, decode(t, got), written)
			rendered++
		})
	}
	if rendered == len(files) {
		checkKeys(t, written)
	}
}

// never are keys that the chart neither sets nor takes: they are a command
// line's, or of a server outside of the cluster.
var never = []string{"server", "server-ca", "kubeconfig"}

// checkKeys holds that every key of tallyman.yaml is the chart's or in the
// schema of the value config, and never both. The files of values together
// make the chart write all of its own.
func checkKeys(t *testing.T, written map[string]bool) {
	t.Helper()
	type node struct{ Properties map[string]node }
	var schema struct{ Properties struct{ Config node } }
	b, err := os.ReadFile(chart + "/values.schema.json")
	if err != nil || stdjson.Unmarshal(b, &schema) != nil {
		t.Fatal("the schema is not read", err)
	}
	taken := map[string]bool{}
	for key, n := range schema.Properties.Config.Properties {
		for sub := range n.Properties {
			taken[key+"."+sub] = true
		}
		taken[key] = len(n.Properties) == 0
	}
	var own []string
	for _, k := range config.Keys() {
		switch {
		case slices.Contains(never, k.Name):
			if taken[k.Name] || written[k.Name] {
				t.Errorf("the chart knows %s", k.Name)
			}
		case taken[k.Name]:
			if !written[k.Name] {
				t.Errorf("no file of values has config.%s", k.Name)
			}
		case written[k.Name]:
			own = append(own, k.Name)
		default:
			t.Errorf("%s is neither set by the chart nor in the schema of config", k.Name)
		}
		delete(taken, k.Name)
	}
	for key, left := range taken {
		if left {
			t.Errorf("config.%s of the schema is no key", key)
		}
	}
	want := []string{"data", "token-file", "agents", "listen", "advertise", "tls-cert", "tls-key", "insecure-listen", "backend", "namespace", "namespaces", "runner-image", "owner", "openshift"}
	if !slices.Equal(own, want) {
		t.Errorf("the chart sets %q, want %q", own, want)
	}
}

// checkConfig reads tallyman.yaml as the server does, compares it with the Pod
// and notes its keys.
func checkConfig(t *testing.T, objects []metav1.Object, written map[string]bool) {
	t.Helper()
	var text string
	var pod corev1.PodTemplateSpec
	var claims []corev1.PersistentVolumeClaim
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			text += o.Data["tallyman.yaml"]
		case *appsv1.StatefulSet:
			pod, claims = o.Spec.Template, o.Spec.VolumeClaimTemplates
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tallyman.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) string { return map[string]string{"HOME": dir}[name] }
	cfg, _, err := config.Load(map[string]string{"config": path}, env, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := yaml.Unmarshal([]byte(text), &keys); err != nil {
		t.Fatal(err)
	}
	for key, v := range keys {
		if m, ok := v.(map[string]any); ok {
			for sub := range m {
				written[key+"."+sub] = true
			}
			continue
		}
		written[key] = true
	}
	c := pod.Spec.Containers[0]
	if c.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS != cfg.UsesTLS() {
		t.Errorf("the probes speak %s", c.ReadinessProbe.HTTPGet.Scheme)
	}
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range claims {
		volumes[v.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("no volume %s", m.Name)
		}
	}
	for _, path := range append([]string{cfg.Data, cfg.TokenFile, cfg.TLSCert, cfg.TLSKey}, cfg.Agents...) {
		if path != "" && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path+"/", m.MountPath+"/") }) {
			t.Errorf("%s is not mounted", path)
		}
	}
}

func TestNamesFitWithALongRelease(t *testing.T) {
	decode(t, render(t, strings.Repeat("r", 53), "--set", "crds.install=false", "--set", "agents.a\\.yaml=x"))
}

func TestBadValuesAreRefused(t *testing.T) {
	for set, want := range map[string]string{
		"bogus=1": "bogus", "config.listen=x": "listen", "config.max-running=0": "max-running",
		"tallyman.advertise=ftp://x": "advertise",
		// Wrong types.
		"rbac.nodes=maybe": "'/rbac/nodes': got string, want boolean", "token.secretName=1": "'/token/secretName': got number, want string",
		"podDisruptionBudget.enabled=1": "'/podDisruptionBudget/enabled': got number", "ingress.annotations.a=1": "'/ingress/annotations/a': got number",
		"serviceMonitor.labels=x": "'/serviceMonitor/labels': got string", "config.grace=1": "'/config/grace': got number",
		// Wrong words.
		"networkPolicy.mode=open": "'/networkPolicy/mode': value must be one of 'public', 'strict'", "config.log-level=loud": "'/config/log-level': value must be one of",
		"config.log-format=xml": "'/config/log-format': value must be one of", "serviceMonitor.interval=soon": "'/serviceMonitor/interval': 'soon' does not match",
		// What needs something else.
		"serviceMonitor.enabled=true":                    "serviceMonitor.enabled needs token.secretName: ",
		"serviceMonitor.enabled=true,token.secretName=x": "serviceMonitor.enabled needs tls.secretName, ",
		"ingress.enabled=true":                           "ingress.enabled needs ingress.host",
	} {
		if out, err := helm("template", "t", chart, "--set", set, "--kube-version", "1.34.0"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v: %s", set, err, out)
		}
	}
}

func TestLint(t *testing.T) {
	if out, err := helm("lint", "--strict", chart); err != nil {
		t.Error(err, out)
	}
}

// rights of the Role in each namespace.
const rights = `batch jobs create,get,list,watch,delete,patch
 pods create,get,list,watch,delete,patch
 pods/log get
 events,resourcequotas get,list,watch
 configmaps get
tallyman.dev agents get,list,watch
tallyman.dev agents/status update,patch
agent.benjamin-borbe.de configs get,list,watch
`

// decode reads every object strictly, but what has no Go type here.
func decode(t *testing.T, text string) (objects []metav1.Object) {
	t.Helper()
	d := json.NewSerializerWithOptions(json.DefaultMetaFactory, clientgoscheme.Scheme, clientgoscheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for _, doc := range strings.Split(text, "\n---\n") {
		if strings.Contains(doc, "\nkind: ServiceMonitor\n") {
			continue
		}
		obj, _, err := d.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, doc)
			continue
		}
		objects = append(objects, obj.(metav1.Object))
		if name := obj.(metav1.Object).GetName(); len(name) > 63 {
			t.Errorf("%T %s has %d characters", obj, name, len(name))
		}
		role, ok := obj.(*rbacv1.Role)
		if !ok {
			continue
		}
		var got strings.Builder
		for _, r := range role.Rules {
			if len(r.ResourceNames) == 0 {
				got.WriteString(strings.Join(r.APIGroups, ",") + " " + strings.Join(r.Resources, ",") + " " + strings.Join(r.Verbs, ",") + "\n")
			}
		}
		if got.String() != rights {
			t.Errorf("Role:\n%s", got.String())
		}
	}
	return objects
}
