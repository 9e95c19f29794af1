// Package kube runs attempts in a Kubernetes cluster. Its room job builds what
// is made there, its room observe judges what is seen; here is what asks the
// cluster: the backend, its informers, and the scribe, which writes the
// journals of Pods without a runner.
package kube
