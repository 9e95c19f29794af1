package job

import (
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

func TestJobName(t *testing.T) {
	long := strings.Repeat("a", 70)
	for _, c := range []struct {
		run     string
		attempt int
		want    string
	}{
		{"demo-cb7tmkfcge", 1, "demo-cb7tmkfcge"},
		{"demo-cb7tmkfcge", 2, "demo-cb7tmkfcge-2"},
		{"demo-cb7tmkfcge", 12, "demo-cb7tmkfcge-12"},
		{strings.Repeat("a", 63), 1, strings.Repeat("a", 63)},
		{strings.Repeat("a", 63), 2, strings.Repeat("a", 54) + "-"}, // and a hash
		{long, 1, strings.Repeat("a", 54) + "-"},
		{"Fix/PROJ_1 🚀", 1, "fix-proj-1-"},
		{"🚀", 1, ""},
	} {
		got := Name(c.run, c.attempt)
		if cut, ok := strings.CutSuffix(c.want, "-"); ok || c.want == "" {
			if !regexp.MustCompile(`^` + regexp.QuoteMeta(cut) + `-?[0-9a-f]{8}$`).MatchString(got) {
				t.Errorf("JobName(%q, %d) = %q, want %q and a hash", c.run, c.attempt, got, cut)
			}
		} else if got != c.want {
			t.Errorf("JobName(%q, %d) = %q, want %q", c.run, c.attempt, got, c.want)
		}
	}
	if Name("PROJ_1", 1) == Name("PROJ-1", 1) || Name(long, 1) == Name(long+"b", 1) {
		t.Error("different runs have one name")
	}
}

// What we make of any text a cluster takes, and different texts stay different.
func TestAnyNameBecomesOneThatAClusterTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.StringN(1, -1, -1).Draw(t, "a"), rapid.StringN(1, -1, -1).Draw(t, "b")
		if errs := validation.IsDNS1123Label(Name(a, 1)); errs != nil {
			t.Fatalf("JobName(%q) = %q: %v", a, Name(a, 1), errs)
		}
		if errs := validation.IsValidLabelValue(labelValue(a)); errs != nil {
			t.Fatalf("labelValue(%q) = %q: %v", a, labelValue(a), errs)
		}
		if a != b && (Name(a, 1) == Name(b, 1) || labelValue(a) == labelValue(b)) {
			t.Fatalf("%q and %q become one", a, b)
		}
		if mayLabel(a) {
			if errs := validation.IsQualifiedName(a); errs != nil {
				t.Fatalf("mayLabel(%q): %v", a, errs)
			}
		}
	})
}

func TestUserLabels(t *testing.T) {
	long := strings.Repeat("x", 300)
	got := userLabels(map[string]string{
		"team": "search", "example.com/Issue": "PROJ/1 🚀", "empty": "", "long": long,
		"tallyman.dev/run": "mine", "app.kubernetes.io/managed-by": "me", "batch.kubernetes.io/job-name": "x", "job-name": "x",
		"with space": "x", "a/b/c": "x", long: "x", "/x": "x", "UPPER.example/x": "x",
	})
	for key, value := range map[string]string{"team": "search", "empty": ""} {
		if v, ok := got[key]; !ok || v != value {
			t.Errorf("label %s is %q, want %q", key, v, value)
		}
	}
	for _, key := range []string{"example.com/Issue", "long"} {
		if errs := validation.IsValidLabelValue(got[key]); errs != nil || got[key] == "" {
			t.Errorf("label %s is %q: %v", key, got[key], errs)
		}
	}
	if len(got) != 4 {
		t.Errorf("there are more labels than a run may set: %v", got)
	}
}
