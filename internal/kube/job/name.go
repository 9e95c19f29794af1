package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// Sizes of names in a cluster, in bytes.
const (
	maxName  = 63 // of a DNS label, of a label's value and of a label key's name
	hashSize = 8
)

// Name is the name of an attempt's object: the run's, and from the second
// attempt on its number.
func Name(run string, attempt int) string {
	if attempt > 1 {
		run += "-" + strconv.Itoa(attempt)
	}
	return dnsLabel(run)
}

// dnsLabel makes a DNS label of any name. One that is not a label already ends
// in a hash of the whole, so that different names stay different.
func dnsLabel(name string) string {
	return fit(name, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' }, "-", strings.ToLower)
}

// labelValue makes a label's value of any text, by the same rule.
func labelValue(text string) string {
	return fit(text, isLabelRune, "-_.", func(s string) string { return s })
}

func isLabelRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
}

// fit replaces what is not allowed, trims what may not stand at an end, cuts,
// and where any of this changed the name adds a hash of it.
func fit(name string, allowed func(rune) bool, notAtEnds string, fold func(string) string) string {
	fitted := strings.Trim(strings.Map(func(r rune) rune {
		if allowed(r) {
			return r
		}
		return '-'
	}, fold(name)), notAtEnds)
	if fitted == name && len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:])[:hashSize]
	fitted = strings.TrimRight(fitted[:min(len(fitted), maxName-hashSize-1)], notAtEnds)
	if fitted == "" {
		return hash
	}
	return fitted + "-" + hash
}

// Labels and annotations of what we make. We touch only what carries them.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "tallyman"
	prefix         = "tallyman.dev/"
	LabelRun       = prefix + "run"     // the run's id
	LabelAttempt   = prefix + "attempt" // its number
	labelAgent     = prefix + "agent"
	labelSkill     = prefix + "skill"
	LabelRunner    = prefix + "runner" // bare, where there is none

	annotationRun      = prefix + "run-name"
	annotationLabels   = prefix + "labels"    // the run's own, as JSON
	annotationCA       = prefix + "server-ca" // PEM
	AnnotationWoken    = prefix + "woken"     // when we last made the Job controller look
	AnnotationDeadline = prefix + "deadline"  // of an agent without a runner
)

// skillLabel is the run's label that names its skill.
const skillLabel = "skill"

// userLabels are the run's own labels as a cluster takes them. One whose key
// no cluster would take, or that is not the run's to set, is left out: the
// annotation has them all.
func userLabels(labels map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range labels {
		if mayLabel(key) {
			kept[key] = labelValue(value)
		}
	}
	return kept
}

// reserved are the prefixes of keys that mean something to others.
var reserved = []string{"tallyman.dev", "kubernetes.io", "k8s.io"}

func mayLabel(key string) bool {
	domain, name, hasDomain := strings.Cut(key, "/")
	if !hasDomain {
		domain, name = "", key
	}
	if name == "" || labelValue(name) != name || hasDomain && !isDomain(domain) {
		return false
	}
	for _, r := range reserved {
		if domain == r || strings.HasSuffix(domain, "."+r) {
			return false
		}
	}
	return key != "job-name" && key != "controller-uid"
}

func isDomain(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || dnsLabel(part) != part {
			return false
		}
	}
	return true
}

// RefOf reads an object's labels.
func RefOf(labels map[string]string) (tallyman.AttemptRef, bool) {
	n, err := strconv.Atoi(labels[LabelAttempt])
	ref := tallyman.AttemptRef{RunID: labels[LabelRun], Number: n}
	return ref, err == nil && n > 0 && labels[LabelManagedBy] == ManagedBy && tallyman.IsRunID(ref.RunID)
}
