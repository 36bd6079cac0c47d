package app_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/background"
)

// TestDeadlineAfterTheClockWasSetBack: the time limit of a task passes although the wall clock was set back
// by two hours.
func TestDeadlineAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		var mu sync.Mutex
		wall, elapsed := time.Now(), time.Duration(0)
		locked := func(change func()) {
			mu.Lock()
			defer mu.Unlock()
			change()
		}
		clock := background.SteadyClock(
			func() (at time.Time) { locked(func() { at = wall }); return at },
			func() (d time.Duration) { locked(func() { d = elapsed }); return d },
		)
		cfg := configured(t, database)
		a := startWithV5(t, cfg, &app.Options{Clock: clock})
		c := newClient(t, a.URL(), adminToken(t, cfg.Data))
		worker := dialTCP(t, a.V5Addr())
		worker.join(";name=silent;caps=custom:dig")
		eventually(t, func() bool { return c.online(t, "v5-silent") }, "the agent is online")
		task := into[struct{ ID string }](t, c, http.StatusAccepted, http.MethodPost, "/api/v1/tasks",
			map[string]any{"capabilities": []string{"custom:dig"}, "timeout_ms": 100, "retries": 0}).ID
		require.Contains(t, worker.next(), "call=dig")
		locked(func() { wall = wall.Add(-2 * time.Hour) })
		require.Equal(t, "new", get[taskDetail](t, c, "/api/v1/tasks/"+task).State, "no time has elapsed")
		locked(func() { wall, elapsed = wall.Add(time.Second), elapsed+time.Second })
		eventually(t, func() bool { return get[taskDetail](t, c, "/api/v1/tasks/"+task).State == "failed" }, "the task ends")
	})
}
