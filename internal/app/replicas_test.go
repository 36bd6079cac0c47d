package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/bus/bustest"
	"comet/store/storetest"
)

// TestThreeReplicas: three servers share one PostgreSQL and one NATS. Agents are connected to the
// first two, clients use all three, and the first is killed: no accepted task is lost, and the
// others continue. Then NATS is killed and restarts empty.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		if name == "postgres" {
			testThreeReplicas(t)
		}
	}
}

func testThreeReplicas(t *testing.T) {
	t.Helper()
	nats := bustest.Start(t, bustest.Settings{})
	database := env("COMET_DATABASE_URL="+storetest.EmptyPostgres(t), "COMET_NATS_URL="+nats.URL(), secretKeys(t))
	const admin = "0123456789abcdef0123456789abcdef"
	var all []*process
	var clients []*client
	for range 3 {
		p := serve(t, t.TempDir(), database, env("COMET_ADMIN_TOKEN="+admin))
		all = append(all, p)
		clients = append(clients, newClient(t, p.url(t), admin))
	}
	runner := &jobRunner{tokens: 7}
	agents := []string{"infra-1", "infra-2", "infra-3"}
	for n, id := range agents {
		url, token := clients[min(n, 1)].URL, clients[2].registerInfra(t, id, "job") // only the first agent is connected to the server that is killed
		if n == 1 {
			runner.runV5Agent(t, overWebSocket(url, token), token, 4)
		} else {
			runner.runAgent(t, url, token, 4)
		}
	}
	var jobs []*job
	submit := func(clients []*client, many int) {
		for n := range many {
			sender, err := comet.NewClient(clients[n%len(clients)].URL, admin, clients[0].HTTP)
			require.NoError(t, err)
			j := newJob(len(jobs), 50)
			require.True(t, submitUntilAccepted(t.Context(), sender, j))
			jobs = append(jobs, j)
		}
	}
	submit(clients, 60)
	all[0].kill()
	submit(clients[1:], 60)
	nats.Kill()
	submit(clients[1:], 30)
	nats.Restart(t)
	submit(clients[1:], 60)
	charged := clients[2].settle(t, jobs...)
	for _, d := range charged.tasks {
		require.Equal(t, "done", d.State, "%+v", d)
	}
	charged.requireSettled(t, agents...)
	require.Positive(t, charged.tokensOf(t, "infra-3"))
	all[1].stop(t)
	all[2].stop(t)
}
