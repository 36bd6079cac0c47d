package envelope_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func BenchmarkParse(b *testing.B) {
	for _, x := range benchmarks(b) {
		b.Run(x.name, func(b *testing.B) {
			data := []byte(x.sent)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := envelope.Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFormat(b *testing.B) {
	for _, x := range benchmarks(b) {
		b.Run(x.name, func(b *testing.B) {
			e := parse(b, x.sent)
			b.SetBytes(int64(len(x.sent)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := envelope.Format(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchmarks returns the document's first example, a status, a heartbeat and a full chunk.
func benchmarks(b *testing.B) []example {
	b.Helper()
	all := examples(b)
	task := uuid.MustParse(taskID)
	chunk := envelope.Split(strings.Repeat("0123456 line of a log\n", envelope.MaxChunk), envelope.MaxChunk)[1]
	full, err := envelope.Format(around(envelope.WorkStatus{
		TaskID: task, Status: envelope.StatusRunning, Step: &envelope.Step{Name: "s", Output: chunk.Text, Chunk: chunk.Range},
	}))
	require.NoError(b, err)
	return []example{
		{name: "request", sent: all[0].want},
		{name: "status", sent: all[2].want},
		{name: "heartbeat", sent: bases()["heartbeat"]},
		{name: "chunk", sent: string(full)},
	}
}
