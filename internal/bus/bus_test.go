package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/bus"
	"comet/internal/bus/bustest"
)

// timeout is how long a test waits for an event that must happen.
const timeout = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture opens buses with an embedded server, or with a server of their own.
type fixture struct {
	url string
	// outage ends the connections of the server, and its state.
	outage func(t *testing.T, b *bus.Bus)
}

// open returns a running bus.
func (f fixture) open(t testing.TB, change ...func(*bus.Options)) *bus.Bus {
	t.Helper()
	opts := &bus.Options{URL: f.url}
	for _, c := range change {
		c(opts)
	}
	return start(t, opts)
}

// start returns a bus that runs until the test ends.
func start(t testing.TB, opts *bus.Options) *bus.Bus {
	t.Helper()
	b, err := bus.New(opts)
	require.NoError(t, err)
	require.NoError(t, b.Start(t.Context()))
	t.Cleanup(func() { stop(t, b) })
	return b
}

func stop(t testing.TB, b *bus.Bus) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	require.NoError(t, b.Stop(ctx))
}

// testBoth runs a test with both kinds of bus.
func testBoth(t *testing.T, test func(t *testing.T, f fixture)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, fixture{outage: func(t *testing.T, b *bus.Bus) { require.NoError(t, b.Break()) }})
	})
	t.Run("external", func(t *testing.T) {
		t.Parallel()
		server := bustest.Start(t, bustest.Settings{})
		test(t, fixture{url: server.URL(), outage: func(t *testing.T, _ *bus.Bus) {
			server.Kill()
			server.Restart(t)
		}})
	})
}

// flush waits until the server has processed all earlier messages and subscriptions.
func flush(t testing.TB, b *bus.Bus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, b.Flush(ctx))
}

// receive subscribes and returns the messages.
func receive(t testing.TB, b *bus.Bus, subject string) <-chan bus.Message {
	t.Helper()
	received := make(chan bus.Message, 10000)
	_, err := b.Subscribe(subject, func(m bus.Message) { received <- m })
	require.NoError(t, err)
	flush(t, b)
	return received
}

// listen returns the gaps of a bus.
func gapsOf(b *bus.Bus) <-chan struct{} {
	gaps := make(chan struct{}, 10000)
	b.OnGap(func() { gaps <- struct{}{} })
	return gaps
}

// answers waits until the bus is connected.
func waitConnected(t testing.TB, b *bus.Bus) {
	t.Helper()
	require.Eventually(t, func() bool { return b.Check(t.Context()) == nil }, timeout, 5*time.Millisecond)
}

// metric returns the value of one of the bus's metrics.
func metric(t testing.TB, b *bus.Bus, name string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[0]
		return m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	require.Fail(t, "no metric "+name)
	return 0
}

func TestMetricsHaveConventionalNames(t *testing.T) {
	t.Parallel()
	b := start(t, nil)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b))
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 5)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)

	require.NoError(t, b.Publish("a", nil))
	require.Error(t, b.Publish("a b", nil))
	require.InDelta(t, 1, metric(t, b, "comet_bus_messages_published_total"), 0)
	require.InDelta(t, 1, metric(t, b, "comet_bus_publish_failures_total"), 0)
	require.InDelta(t, 1, metric(t, b, "comet_bus_connected"), 0)
	stop(t, b)
	require.InDelta(t, 0, metric(t, b, "comet_bus_connected"), 0)
}

func TestInvalidOptionsAreRejected(t *testing.T) {
	t.Parallel()
	missing := t.TempDir() + "/missing"
	for name, c := range map[string]struct {
		opts bus.Options
		want string
	}{
		"a URL without a scheme":              {bus.Options{URL: "localhost:4222"}, "server 1 of URL"},
		"an invalid second server":            {bus.Options{URL: "nats://a:1, nats://u:hunter2@"}, "server 2 of URL"},
		"an empty list of servers":            {bus.Options{URL: " , "}, "URL names no server"},
		"a URL and an address":                {bus.Options{URL: "nats://a", Listen: "127.0.0.1:0"}, "Listen is for the embedded server"},
		"credentials without a server":        {bus.Options{Credentials: missing}, "Credentials are for a server"},
		"TLS without a server":                {bus.Options{CAFile: missing}, "are for URL or Listen"},
		"a certificate without its key":       {bus.Options{URL: "nats://a", CertFile: missing}, "belong together"},
		"credentials that are missing":        {bus.Options{URL: "nats://a", Credentials: missing}, "no such file"},
		"authorities that are missing":        {bus.Options{URL: "nats://a", CAFile: missing}, "no such file"},
		"a certificate that is missing":       {bus.Options{URL: "nats://a", CertFile: missing, KeyFile: missing}, "no such file"},
		"a server's certificate":              {bus.Options{Listen: "127.0.0.1:0", CertFile: missing, KeyFile: missing}, "no such file"},
		"an address without a port":           {bus.Options{Listen: "127.0.0.1"}, "is not of the form host:port"},
		"all interfaces without Authenticate": {bus.Options{Listen: "0.0.0.0:0"}, "must be a loopback address"},
		"a port without Authenticate":         {bus.Options{Listen: ":4222"}, "must be a loopback address"},
		"a negative limit":                    {bus.Options{PendingBytes: -1}, "a limit is negative"},
		"messages larger than NATS carries":   {bus.Options{MaxPayload: 1 << 30}, "MaxPayload"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bus.New(&c.opts)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "hunter2", "the error contains the password")
		})
	}
}
