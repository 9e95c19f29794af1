package gateway

import (
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// maxName is how long the name of an artifact may be, in bytes: what a path
// may have on Linux.
const maxName = 4096

// upload is what an artifact call says.
type upload struct {
	name, digest string
	size, offset int64
}

func (g *Gateway) upload(c call) (upload, error) {
	q := c.r.URL.Query()
	u := upload{name: c.r.PathValue("name"), digest: q.Get("digest")}
	var err error
	if !fs.ValidPath(u.name) || u.name == "." || len(u.name) > maxName || strings.ContainsRune(u.name, 0) {
		return u, tallyman.Errorf(tallyman.Invalid, "%.100q is not the path of a file within a workspace, as UTF-8", u.name)
	}
	if u.size, err = strconv.ParseInt(q.Get("size"), 10, 64); err != nil || u.size < 0 {
		return u, tallyman.Errorf(tallyman.Invalid, "size %q is not a number of bytes", q.Get("size"))
	}
	if s := q.Get("offset"); s != "" {
		if u.offset, err = strconv.ParseInt(s, 10, 64); err != nil || u.offset < 0 || u.offset > u.size {
			return u, tallyman.Errorf(tallyman.Invalid, "offset %q is not within %d bytes", s, u.size)
		}
	}
	if u.size > g.maxArtifact {
		return u, tallyman.Errorf(tallyman.TooLarge, "%d bytes are more than the %d that an artifact may have", u.size, g.maxArtifact)
	}
	if _, err := g.check(c); err != nil {
		return u, err
	}
	return u, nil
}

// artifactOffset tells how much of a file is here already.
func (g *Gateway) artifactOffset(c call) error {
	u, err := g.upload(c)
	if err != nil {
		return err
	}
	have, done, err := g.blobs.Offset(c.r.Context(), u.digest)
	if err != nil {
		return err
	}
	if done {
		have = u.size
	}
	c.w.Header().Set("Upload-Offset", strconv.FormatInt(have, 10))
	c.w.WriteHeader(http.StatusOK)
	return nil
}

// artifact takes a file, or the rest of it, and records it once it is whole.
func (g *Gateway) artifact(c call) error {
	u, err := g.upload(c)
	if err != nil {
		return err
	}
	have, done, err := g.blobs.Offset(c.r.Context(), u.digest)
	if err != nil {
		return err
	}
	if done && have != u.size {
		return tallyman.Errorf(tallyman.Invalid, "the file with this digest has %d bytes, not %d", have, u.size)
	}
	if !done {
		body := http.MaxBytesReader(c.w, c.r.Body, u.size-u.offset+1) // one too many is noticed
		if have, done, err = g.blobs.Resume(c.r.Context(), u.digest, u.size, u.offset, body); err != nil {
			return err
		}
		if !done {
			c.w.Header().Set("Upload-Offset", strconv.FormatInt(have, 10))
			return tallyman.Errorf(tallyman.Unavailable, "%d of %d bytes are here: go on from there", have, u.size)
		}
	}
	err = g.control.Artifact(c.r.Context(), tallyman.Artifact{
		RunID: c.ref.RunID, Attempt: c.ref.Number, Name: u.name,
		Size: u.size, Digest: u.digest, At: time.Now().UTC(),
	})
	if err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
