package envelope_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

// TestDocumentExamples: every JSON example is accepted as printed and formatted in the document's
// order.
func TestDocumentExamples(t *testing.T) {
	t.Parallel()
	all := examples(t)
	require.Len(t, all, 9)
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			e := parse(t, x.sent)
			written, err := envelope.Format(e)
			require.NoError(t, err)
			require.Equal(t, x.want, string(written))

			again := parse(t, x.want)
			e.Raw, again.Raw = nil, nil
			require.Equal(t, spaceless(e), again)
		})
	}
}

// TestFirstExample checks every field of the document's complete envelope.
func TestFirstExample(t *testing.T) {
	t.Parallel()
	e := parse(t, examples(t)[0].sent)
	require.Contains(t, string(e.Raw), `"work_type": "run_playbook"`)
	e.Raw = nil
	require.Equal(t, envelope.Envelope{
		ProtocolVersion: "1.0",
		MessageID:       uuid.MustParse(messageID),
		From:            "orchestrator",
		To:              "infra",
		Timestamp:       time.Date(2026, 1, 19, 4, 21, 4, 0, time.UTC),
		TraceID:         uuid.MustParse(traceID),
		RequestID:       uuid.MustParse(requestID),
		Type:            envelope.TypeWorkRequest,
		Payload: envelope.WorkRequest{
			TaskID:     uuid.MustParse(taskID),
			WorkType:   "run_playbook",
			Parameters: []byte(`{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}}`),
			Hints:      envelope.Hints{MaxDurationSeconds: 300, MaxMemoryMB: 512},
		},
		Custom: []byte(`{}`),
	}, spaceless(e))
}

// TestExamplePayloads checks the payloads of the other examples.
func TestExamplePayloads(t *testing.T) {
	t.Parallel()
	task := uuid.MustParse(taskID)
	want := map[string]envelope.Payload{
		"work_status": envelope.WorkStatus{
			TaskID: task, Status: envelope.StatusRunning, Progress: 50,
			Step: &envelope.Step{Number: 2, Name: "Configure Kuma settings", Output: "Updating config.yaml...\nAdded uptime monitors: 3\n"},
		},
		"work_result-success": envelope.WorkResult{
			TaskID: task, Status: envelope.OutcomeSuccess,
			Output:    "Deployment completed successfully.\nKuma instance running at https://kuma.homelab:3000\nMonitored services: 5",
			Resources: envelope.Resources{DurationSeconds: 87, CPUTimeMS: 12450},
		},
		"work_result-failure": envelope.WorkResult{
			TaskID: task, Status: envelope.OutcomeFailed, ExitCode: 1,
			Output:    "Deployment failed.\nReason: Docker image pull timeout for ghcr.io/louislam/uptime-kuma:latest after 300s.",
			Resources: envelope.Resources{DurationSeconds: 305, CPUTimeMS: 8920},
		},
		"chunk-2": envelope.WorkStatus{
			TaskID: task, Status: envelope.StatusRunning, Progress: 100,
			Step: &envelope.Step{
				Number: 5, Name: "Collecting logs", Output: "[next 256 KB of output...]",
				Chunk: envelope.Range{From: 262144, To: 524288, Total: 524288},
			},
		},
	}
	seen := 0
	for _, x := range examples(t) {
		if p, ok := want[x.name]; ok {
			require.Equal(t, p, parse(t, x.sent).Payload, x.name)
			seen++
		}
	}
	require.Len(t, want, seen)
}

// TestParseExpandsOnlyObjectsOfTheProtocol: objects that only have the names of the protocol's objects cost
// no memory.
func TestParseExpandsOnlyObjectsOfTheProtocol(t *testing.T) {
	nested := strings.Repeat(`{"step":`, 25) + strings.Repeat(`{"hints":`, 25) + "1" + strings.Repeat("}", 50)
	var members strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&members, `"m%d":%s,`, i, nested)
	}
	message := []byte(`{"step":` + nested + `,"payload":{"hints":{},"step":{},` + members.String() + `"x":1}}`)
	allocations := testing.AllocsPerRun(3, func() { _, _ = envelope.Parse(message) })
	require.Less(t, allocations, 5000.0, "for 50,000 objects")
}
