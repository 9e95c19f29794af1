package kube

import "strings"

// resourcePrefix heads the origin of agents that are custom resources.
const resourcePrefix = "resource:"

// IsResource reports whether an agent of this origin is a custom resource.
func IsResource(origin string) bool { return strings.HasPrefix(origin, resourcePrefix) }
