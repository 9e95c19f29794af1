// Package telemetry shows a server's health and figures: /healthz, /readyz
// and Prometheus metrics at /metrics.
package telemetry

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallyman-dev/tallyman"
)

// Sources are what figures are read from, when they are asked for.
type Sources struct {
	Counts  func(ctx context.Context) (map[tallyman.State]int, error)
	Load    func(ctx context.Context) (total int, byAgent map[string]int, err error)
	Ready   func(ctx context.Context) error
	Version string
}

// Routes adds health and metrics to a mux.
func Routes(mux *http.ServeMux, s Sources) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // a caller that has gone reads nothing
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(r.Context()); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
}

var (
	runs  = prometheus.NewDesc("tallyman_runs", "Runs that are kept, by state.", []string{"state"}, nil)
	slots = prometheus.NewDesc("tallyman_slots_taken", "Attempts whose slot is taken, by agent.", []string{"agent"}, nil)
	build = prometheus.NewDesc("tallyman_build_info", "The version, as a label.", []string{"version"}, nil)
)

// collector reads its figures when it is scraped: what is kept is the truth.
type collector struct{ s Sources }

// Describe names the metrics.
func (c *collector) Describe(out chan<- *prometheus.Desc) { out <- runs; out <- slots; out <- build }

// Collect reads the metrics. What cannot be read is told as invalid.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx := context.Background()
	out <- prometheus.MustNewConstMetric(build, prometheus.GaugeValue, 1, c.s.Version)
	counts, err := c.s.Counts(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(runs, err)
	} else {
		for _, state := range tallyman.States {
			out <- prometheus.MustNewConstMetric(runs, prometheus.GaugeValue, float64(counts[state]), string(state))
		}
	}
	_, byAgent, err := c.s.Load(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(slots, err)
		return
	}
	for agent, n := range byAgent {
		out <- prometheus.MustNewConstMetric(slots, prometheus.GaugeValue, float64(n), agent)
	}
}
