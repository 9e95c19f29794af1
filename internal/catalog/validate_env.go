package catalog

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// ours heads the variables that the runner sets: the mark by which it finds
// every process of an attempt must be true.
const ours = "TALLYMAN_"

var envShape = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)

func validEnvName(path, name string) *FieldError {
	switch {
	case name == "":
		return fieldError(path, "is missing; every variable has a name")
	case !envShape.MatchString(name):
		return fieldError(path, "%q is no name of a variable; use letters, digits and _, not a digit first", name)
	case strings.HasPrefix(name, ours):
		return fieldError(path, "%s is set by tallyman; names that begin with %s are taken", name, ours)
	}
	return nil
}

func validEnv(env []tallyman.EnvVar) []*FieldError {
	var wrong []*FieldError
	for i, v := range env {
		path := fmt.Sprintf("spec.env[%d]", i)
		wrong = append(wrong, validEnvName(path+".name", v.Name))
		if strings.ContainsRune(v.Value, 0) {
			wrong = append(wrong, fieldError(path+".value", "a NUL byte cannot be in a variable"))
		}
	}
	return wrong
}

func validEnvFrom(path string, from tallyman.EnvSource) []*FieldError {
	kinds := 0
	for _, given := range []bool{from.Host != nil, from.File != "", from.SecretRef != nil} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return []*FieldError{fieldError(path, "give exactly one of host, file and secretRef; here are %d", kinds)}
	}
	var wrong []*FieldError
	switch {
	case from.Host != nil && len(from.Host) == 0:
		wrong = append(wrong, fieldError(path+".host", "the list is empty; name the variables to take from the server's environment"))
	case from.Host != nil:
		for i, name := range from.Host {
			wrong = append(wrong, validEnvName(fmt.Sprintf("%s.host[%d]", path, i), name))
		}
	case from.File != "" && from.File[0] == '~':
		wrong = append(wrong, fieldError(path+".file", "%q: ~ is not expanded here; write the whole path", from.File))
	case from.File != "" && !filepath.IsAbs(from.File):
		wrong = append(wrong, fieldError(path+".file", "%q is relative to no agent file; write an absolute path", from.File))
	case from.SecretRef != nil && from.SecretRef.Name == "":
		wrong = append(wrong, fieldError(path+".secretRef.name", "is missing; name the Secret"))
	}
	return wrong
}
