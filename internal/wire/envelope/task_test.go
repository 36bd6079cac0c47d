package envelope_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/wire/envelope"
)

func TestTaskOf(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"payload":{"task_id":"a","x":{"task_id":"b"}}}`: "a",
		`{"payload": {"task_id" : "a b"`:                  "a b",
		`{"task_id":5}`:                                   "",
		`{"task_id":`:                                     "",
		`{"task_id":"open`:                                "",
		`{"task":"a"}`:                                    "",
		``:                                                "",
		`{"task_id":"` + strings.Repeat("x", 65) + `"}`: "",
	} {
		require.Equal(t, want, envelope.FindTaskID([]byte(raw)), raw)
	}
}
