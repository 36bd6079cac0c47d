// Package replicas has the statements on the processes that use a database: their heartbeats, and the
// leases and connections that belong to them. The ids of the leases of webhooks are those of processes;
// the ids of the leases of jobs and of connections begin with one and a slash.
package replicas

import "comet/store"

// All selects every process.
const All = "%"

// Replica is a process that uses the database.
type Replica struct {
	ID         string
	Heartbeats int64 // their number
}

// Heartbeat records a heartbeat of a process. It returns the number of its heartbeats, which is 1 if
// another process has deleted its row, and the other processes.
func Heartbeat(tx *store.Tx, process string) (heartbeats int64, others []Replica, err error) {
	heartbeats, err = store.Row[int64](tx, `INSERT INTO replicas (id, heartbeats) VALUES (?, 1)
		ON CONFLICT (id) DO UPDATE SET heartbeats = replicas.heartbeats + 1 RETURNING heartbeats`, process)
	if err == nil {
		others, err = store.Rows[Replica](tx, "SELECT id, heartbeats FROM replicas WHERE id <> ?", process)
	}
	return heartbeats, others, err
}

// AdoptWorkflows is the kind of the job that continues the running workflows without a holder.
const AdoptWorkflows = "workflows.adopt"

// Release ends the leases of a process, which makes its webhooks and jobs due, releases its running workflows and
// remote agents to other processes, and deletes its row. It reports whether there was one.
func Release(tx *store.Tx, process string) (found bool, err error) {
	_, err = tx.Exec("UPDATE webhooks SET lease_owner = '', lease_until = 0 WHERE lease_owner LIKE ? AND lease_owner <> ''", process)
	if err == nil {
		_, err = tx.Exec("UPDATE jobs SET lease = '', run_at = ? WHERE lease LIKE ?", tx.Now(), process+"/%")
	}
	if err == nil {
		_, err = tx.Exec("UPDATE remote_agents SET holder = '' WHERE holder LIKE ?", process+"/%")
	}
	var left int64
	if err == nil {
		left, err = tx.Exec("UPDATE workflows SET holder = '', version = version + 1 WHERE state = 0 AND holder LIKE ?", process)
	}
	if err == nil && left > 0 {
		_, err = tx.Jobs().Enqueue(store.Job{Kind: AdoptWorkflows})
	}
	if err != nil {
		return false, err
	}
	n, err := tx.Exec("DELETE FROM replicas WHERE id LIKE ?", process)
	return n > 0, err
}

// Connection is a connection of a worker that is not offline.
type Connection struct{ AgentID, ConnectionID string }

// Connections returns the connections to a process.
func Connections(from store.Source, process string) ([]Connection, error) {
	return store.Rows[Connection](from, "SELECT agent_id, connection_id FROM workers WHERE state > 0 AND connection_id LIKE ?", process+"/%")
}
