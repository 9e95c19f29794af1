package gateway_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func digest(b string) string {
	sum := sha256.Sum256([]byte(b))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func where(name, digest string, size int) string {
	return "artifacts/" + url.PathEscape(name) + "?digest=" + url.QueryEscape(digest) + "&size=" + strconv.Itoa(size)
}

// put uploads a file from an offset on.
func (r *runner) put(name, text string, offset int) reply {
	r.t.Helper()
	return r.call(http.MethodPut, where(name, digest(text), len(text))+"&offset="+strconv.Itoa(offset), strings.NewReader(text[offset:]))
}

// offset asks how much of a file is here.
func (r *runner) offset(text string) string {
	r.t.Helper()
	return r.call(http.MethodHead, where("a", digest(text), len(text)), nil).is(http.StatusOK).header.Get("Upload-Offset")
}

// artifacts are the names and sizes that are recorded.
func (r *runner) artifacts() string {
	r.t.Helper()
	list, err := r.store.Artifacts(r.t.Context(), r.ref.RunID)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, a := range list {
		f, size, err := r.blobs.Open(r.t.Context(), a.Digest)
		if err != nil {
			r.t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil || size != a.Size || digest(string(b)) != a.Digest {
			r.t.Errorf("artifact %s has %d bytes, recorded are %d: %v", a.Name, size, a.Size, err)
		}
		_ = f.Close()
		all = append(all, fmt.Sprintf("%s:%d", a.Name, a.Size))
	}
	return strings.Join(all, " ")
}

func TestAnArtifactGoesOnWhereItsUploadBroke(t *testing.T) {
	r := newWorld(t).greeted()
	text := strings.Repeat("0123456789", 50_000)
	if got := r.offset(text); got != "0" {
		t.Errorf("at the beginning the offset is %s", got)
	}
	// The connection breaks in the middle, once some of it has arrived.
	body, sent := io.Pipe()
	broken := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.server.URL+"/runner/v1/attempts/"+r.ref.String()+"/"+where("a", digest(text), len(text)), body)
		if err != nil {
			broken <- nil
			return
		}
		req.ContentLength = int64(len(text))
		req.Header.Set("Authorization", "Bearer "+r.key)
		_, err = http.DefaultClient.Do(req)
		broken <- err
	}()
	if _, err := io.WriteString(sent, text[:123_456]); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); r.offset(text) == "0" && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	_ = sent.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-broken; err == nil {
		t.Fatal("the broken upload was answered")
	}
	// The server may take a moment to notice. A gap is refused all the same.
	gap := r.put("a", text, 200_000)
	for end := time.Now().Add(20 * time.Second); gap.status == http.StatusServiceUnavailable && time.Now().Before(end); gap = r.put("a", text, 200_000) {
		time.Sleep(5 * time.Millisecond)
	}
	gap.is(http.StatusConflict)
	have, err := strconv.Atoi(r.offset(text))
	if err != nil || have == 0 || have > 123_456 {
		t.Fatalf("after the break the offset is %d, %v", have, err)
	}
	if got := r.artifacts(); got != "" {
		t.Errorf("recorded is %s", got)
	}
	r.put("a", text, have).is(http.StatusNoContent)
	if got := r.offset(text); got != strconv.Itoa(len(text)) {
		t.Errorf("at the end the offset is %s", got)
	}
	// Once more, by another name and by another run: it is here already.
	r.call(http.MethodPut, where("b", digest(text), len(text)), http.NoBody).is(http.StatusNoContent)
	if got := r.artifacts(); got != "a:500000 b:500000" {
		t.Errorf("recorded is %s", got)
	}
}

func TestPartOfAnArtifactSaysHowMuchIsHere(t *testing.T) {
	r := newWorld(t).greeted()
	text := strings.Repeat("x", 1000)
	a := r.call(http.MethodPut, where("a", digest(text), len(text)), strings.NewReader(text[:400])).is(http.StatusServiceUnavailable).says("400 of 1000")
	if got := a.header.Get("Upload-Offset"); got != "400" {
		t.Errorf("the offset is %s", got)
	}
	r.put("a", text, 400).is(http.StatusNoContent)
}

func TestArtifactsThatAreRefused(t *testing.T) {
	r := newWorld(t).greeted()
	good := digest("abc")
	for name, c := range map[string]struct {
		path, body string
		status     int
	}{
		"other bytes than the digest":   {where("a", good, 3), "abd", http.StatusBadRequest},
		"more bytes than the size":      {where("a", good, 3), "abcd", http.StatusBadRequest},
		"no digest":                     {"artifacts/a?size=3", "abc", http.StatusBadRequest},
		"a digest of another kind":      {where("a", "md5:x", 3), "abc", http.StatusBadRequest},
		"a digest that is a path":       {where("a", "sha256:../../../../etc/passwd", 3), "abc", http.StatusBadRequest},
		"no size":                       {"artifacts/a?digest=" + good, "abc", http.StatusBadRequest},
		"a size below zero":             {where("a", good, -1), "abc", http.StatusBadRequest},
		"an offset beyond the size":     {where("a", good, 3) + "&offset=4", "abc", http.StatusBadRequest},
		"an offset below zero":          {where("a", good, 3) + "&offset=-1", "abc", http.StatusBadRequest},
		"too large":                     {where("a", good, maxArtifact+1), "abc", http.StatusRequestEntityTooLarge},
		"a path that leads out":         {where("../../etc/passwd", good, 3), "abc", http.StatusBadRequest},
		"a path that leads out inside":  {where("a/../../b", good, 3), "abc", http.StatusBadRequest},
		"an absolute path":              {where("/etc/passwd", good, 3), "abc", http.StatusBadRequest},
		"dots alone":                    {where("..", good, 3), "abc", http.StatusNotFound},
		"encoded dots":                  {"artifacts/%2e%2e%2fx?digest=" + good + "&size=3", "abc", http.StatusBadRequest},
		"a name that ends in a slash":   {where("a/", good, 3), "abc", http.StatusBadRequest},
		"a NUL byte":                    {where("a\x00b", good, 3), "abc", http.StatusBadRequest},
		"a name that is not UTF-8":      {where("a\xff", good, 3), "abc", http.StatusBadRequest},
		"a name that is longer than it": {where(strings.Repeat("n", 4097), good, 3), "abc", http.StatusBadRequest},
	} {
		if a := r.call(http.MethodPut, c.path, strings.NewReader(c.body)); a.status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, a.status, c.status, a.body)
		}
	}
	if got := r.artifacts(); got != "" {
		t.Errorf("recorded is %s", got)
	}
	if got := r.offset("abc"); got != "0" {
		t.Errorf("of what was refused %s bytes are kept", got)
	}
	r.put("a", "abc", 0).is(http.StatusNoContent)
	// A file is as long as it is, whatever who names it says.
	r.call(http.MethodPut, where("b", good, 5), strings.NewReader("abcde")).is(http.StatusBadRequest).says("has 3 bytes, not 5")
}

func TestNamesOfArtifacts(t *testing.T) {
	r := newWorld(t).greeted()
	names := []string{
		"a.txt", "dir/sub dir/a b.txt", "ü/日本語 😀.md", "100%.txt", "a%2Fb", "q?x=1&y=2#z", "semi;colon", "plus+plus", "'quotes\"", "back\\slash",
		"-dash", ".hidden", "...", "new\nline", "tab\t", "a:b", "<script>", strings.Repeat("n", 255),
	}
	for i, name := range names {
		r.put(name, fmt.Sprint(i), 0).is(http.StatusNoContent)
	}
	list, err := r.store.Artifacts(t.Context(), r.ref.RunID)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, a := range list {
		got[a.Name] = true
	}
	for _, name := range names {
		if !got[name] {
			t.Errorf("%q is not among what is recorded", name)
		}
	}
	if len(list) != len(names) {
		t.Errorf("%d are recorded, want %d", len(list), len(names))
	}
}

func TestTheEmptyFileIsAnArtifact(t *testing.T) {
	r := newWorld(t).greeted()
	r.call(http.MethodPut, where("empty", digest(""), 0), http.NoBody).is(http.StatusNoContent)
	if got := r.artifacts(); got != "empty:0" {
		t.Errorf("recorded is %s", got)
	}
}

func TestAnArtifactAfterTheEndIsStillTaken(t *testing.T) {
	r := newWorld(t).greeted()
	r.ends(tallyman.RunnerLost)
	r.put("late", "x", 0).is(http.StatusNoContent)
}

func TestThePromptIsServedWhole(t *testing.T) {
	w := newWorld(t)
	prompt := strings.Repeat("ü\n", 100_000)
	run, _, err := w.service.Submit(t.Context(), tallyman.Request{Agent: "worker", Prompt: prompt})
	if err != nil {
		t.Fatal(err)
	}
	r := w.next(run.ID)
	var welcome tallyman.Welcome
	r.hello("J", 0).is(http.StatusOK).decode(&welcome)
	if welcome.Spec.Prompt != "" || welcome.Spec.PromptSize != int64(len(prompt)) {
		t.Errorf("the spec has %d bytes of %d", len(welcome.Spec.Prompt), welcome.Spec.PromptSize)
	}
	a := r.call(http.MethodGet, "files/prompt", nil).is(http.StatusOK)
	if a.body != prompt || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Errorf("%d bytes of %s came", len(a.body), a.header.Get("Content-Type"))
	}
	r.call(http.MethodGet, "files/passwd", nil).is(http.StatusNotFound)
}
