package bus_test

import (
	"testing"

	"comet/internal/bus"
	"comet/internal/bus/bustest"
)

// benchmarkBoth runs a benchmark with both kinds of bus.
func benchmarkBoth(b *testing.B, run func(b *testing.B, on *bus.Bus)) {
	b.Run("embedded", func(b *testing.B) { run(b, start(b, nil)) })
	b.Run("external", func(b *testing.B) {
		run(b, start(b, &bus.Options{URL: bustest.Start(b, bustest.Settings{}).URL()}))
	})
}

// BenchmarkWake is the time from a publish to its handler, one at a time.
func BenchmarkWake(b *testing.B) {
	benchmarkBoth(b, func(b *testing.B, on *bus.Bus) {
		received := receive(b, on, string(bus.WakeInboxes))
		subject := bus.WakeInboxes.Of("orch-business")
		b.ReportAllocs()
		for b.Loop() {
			if err := on.Publish(subject, nil); err != nil {
				b.Fatal(err)
			}
			<-received
		}
	})
}

// BenchmarkRequest is the time of a request and its response, one at a time.
func BenchmarkRequest(b *testing.B) {
	benchmarkBoth(b, func(b *testing.B, on *bus.Bus) {
		if _, err := on.Subscribe("ask", func(m bus.Message) { _ = m.Respond(m.Data) }); err != nil {
			b.Fatal(err)
		}
		data := make([]byte, 256)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := on.Request(b.Context(), "ask", data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPublish is the time of Publish.
func BenchmarkPublish(b *testing.B) {
	benchmarkBoth(b, func(b *testing.B, on *bus.Bus) {
		subject := bus.WakeInboxes.Of("orch-business")
		b.ReportAllocs()
		for b.Loop() {
			if err := on.Publish(subject, nil); err != nil {
				b.Fatal(err)
			}
		}
		flush(b, on)
	})
}

// BenchmarkSubject formats and parses a subject.
func BenchmarkSubject(b *testing.B) {
	for b.Loop() {
		if _, ok := bus.AgentOutboxes.NameIn(bus.AgentOutboxes.Of("orch-business")); !ok {
			b.Fatal("not parsed")
		}
	}
}
