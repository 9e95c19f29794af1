//go:build deploy

// Package deploy_test renders the chart with the real helm.
package deploy_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
	hold(t, "../../deploy/manifests/tallyman.yaml", render(t, "tallyman"))
}

func TestRendering(t *testing.T) {
	for _, name := range []string{"plain", "full"} {
		t.Run(name, func(t *testing.T) {
			got := render(t, "tallyman", "-f", "testdata/values-"+name+".yaml")
			hold(t, "testdata/golden-"+name+".yaml", got)
			decode(t, got)
		})
	}
}

func TestNamesFitWithALongRelease(t *testing.T) {
	decode(t, render(t, strings.Repeat("r", 53), "--set", "crds.install=false", "--set", "agents.a\\.yaml=x"))
}

func TestBadValuesAreRefused(t *testing.T) {
	for set, key := range map[string]string{
		"bogus=1": "bogus", "config.listen=x": "listen", "config.max-running=0": "max-running",
		"networkPolicy.mode=open": "mode", "rbac.nodes=maybe": "nodes", "tallyman.advertise=ftp://x": "advertise",
	} {
		if out, err := helm("template", "t", chart, "--set", set, "--kube-version", "1.34.0"); err == nil || !strings.Contains(out, key) {
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

// decode reads every object strictly.
func decode(t *testing.T, text string) {
	t.Helper()
	d := json.NewSerializerWithOptions(json.DefaultMetaFactory, clientgoscheme.Scheme, clientgoscheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	for _, doc := range strings.Split(text, "\n---\n") {
		obj, _, err := d.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, doc)
			continue
		}
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
}
