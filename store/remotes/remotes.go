// Package remotes has the statements on remote A2A agents, which execute the tasks of agents of the registry, and
// on the tasks that they have.
package remotes

import (
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/store"
	"comet/store/columns"
)

// MaxAgents limits the remote agents.
const MaxAgents = 1000

// maxError is the longest error that is stored, in bytes.
const maxError = 1000

// SealedSecret is the purpose of the sealed secrets, see package seal.
const SealedSecret = "remote_agents.secret"

// Agent is a row of remote_agents.
type Agent struct {
	AgentID     string `gorm:"primaryKey"`
	CardURL     string
	Concurrency int
	// AuthHeader is the header with the secret, "" for none; AuthType is none, bearer or header.
	AuthHeader, AuthType string
	Secret               []byte // sealed, nil for none
	// Card is nil before the first check that succeeded. ETag is its entity tag, "" for none.
	Card      json.RawMessage
	ETag      string `gorm:"column:etag"`
	CheckedAt time.Time
	// Error is that of the last check, "" if it succeeded.
	Error string
	// Holder is the connection that processes the agent's inbox, "" for none. Version counts changes of the settings.
	Holder               string
	Version              int64
	CreatedBy            string
	CreatedAt, UpdatedAt time.Time
}

// TableName implements gorm's schema.Tabler.
func (Agent) TableName() string { return "remote_agents" }

// Task is a row of remote_tasks: an attempt that a remote agent has.
type Task struct {
	TaskID    string `gorm:"primaryKey"`
	Attempt   int    `gorm:"primaryKey"`
	AgentID   string
	SessionID string
	// RemoteID and ContextID are the ids that the remote agent has given the task and its context.
	RemoteID, ContextID string
	// Asked is the digest of the last question that was passed on, "" for none.
	Asked string
}

// TableName implements gorm's schema.Tabler.
func (Task) TableName() string { return "remote_tasks" }

// Put stores a remote agent and replaces an earlier one. Its holder has to claim it again. It returns errs.LimitReached
// if there are MaxAgents, and errs.Conflict for an unknown agent.
func Put(tx *store.Tx, a *Agent) error {
	before, err := Get(tx, a.AgentID)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	if err != nil {
		n, err := store.Row[int](tx, "SELECT count(*) FROM remote_agents")
		if err != nil {
			return err
		}
		if n >= MaxAgents {
			return errs.New(errs.LimitReached, "there are %d remote agents, which is the limit", MaxAgents)
		}
		before.CreatedAt, before.CreatedBy = tx.Now(), a.CreatedBy
	}
	a.Version, a.CreatedAt, a.CreatedBy, a.UpdatedAt = before.Version+1, before.CreatedAt, before.CreatedBy, tx.Now()
	if _, err := tx.Exec("DELETE FROM remote_agents WHERE agent_id = ?", a.AgentID); err != nil {
		return err
	}
	return store.Insert(tx, "", *a)
}

// Get returns the remote agent of an agent, or errs.NotFound.
func Get(from store.Source, agentID string) (Agent, error) {
	a, err := store.Row[Agent](from, columns.Of[Agent]().Selects+"WHERE agent_id = ?", agentID)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "the agent %q has no remote A2A agent", agentID)
	}
	return a, err
}

// All returns every remote agent, ordered by agent.
func All(from store.Source) ([]Agent, error) {
	return store.Rows[Agent](from, columns.Of[Agent]().Selects+"ORDER BY agent_id")
}

// Delete deletes the remote agent of an agent, or returns errs.NotFound.
func Delete(tx *store.Tx, agentID string) error {
	n, err := tx.Exec("DELETE FROM remote_agents WHERE agent_id = ?", agentID)
	if err == nil && n == 0 {
		err = errs.New(errs.NotFound, "the agent %q has no remote A2A agent", agentID)
	}
	return err
}

// Claim makes a connection the holder of a version of a remote agent without a holder, and reports whether it succeeded.
func Claim(tx *store.Tx, agentID string, version int64, connection string) (bool, error) {
	n, err := tx.Exec("UPDATE remote_agents SET holder = ? WHERE agent_id = ? AND version = ? AND holder = ''", connection, agentID, version)
	return n > 0, err
}

// Release ends what Claim began.
func Release(tx *store.Tx, agentID, connection string) error {
	_, err := tx.Exec("UPDATE remote_agents SET holder = '' WHERE agent_id = ? AND holder = ?", agentID, connection)
	return err
}

// SaveCard stores the card of a version of a remote agent, and the result of the check.
func SaveCard(tx *store.Tx, a Agent) error {
	a.Error = columns.Text(a.Error, maxError)
	_, err := tx.Exec("UPDATE remote_agents SET card = ?, etag = ?, checked_at = ?, error = ? WHERE agent_id = ? AND version = ?",
		string(a.Card), a.ETag, tx.Now(), a.Error, a.AgentID, a.Version)
	return err
}

// TaskOf returns the remote task of an attempt, the zero Task if there is none.
func TaskOf(from store.Source, taskID string, attempt int) (Task, error) {
	t, err := store.Row[Task](from, columns.Of[Task]().Selects+"WHERE task_id = ? AND attempt = ?", taskID, attempt)
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return t, err
}

// EarlierTasks returns the remote tasks of the attempts at a task before one attempt of the same agent.
func EarlierTasks(from store.Source, agentID, taskID string, attempt int) ([]Task, error) {
	return store.Rows[Task](from, columns.Of[Task]().Selects+"WHERE task_id = ? AND attempt < ? AND agent_id = ? ORDER BY attempt", taskID, attempt, agentID)
}

// ContextOf returns the context of an agent's tasks of a session, "" for none.
func ContextOf(from store.Source, agentID, sessionID string) (string, error) {
	if sessionID == "" {
		return "", nil
	}
	id, err := store.Row[string](from, "SELECT context_id FROM remote_tasks WHERE session_id = ? AND agent_id = ? AND session_id <> '' ORDER BY task_id DESC LIMIT 1", sessionID, agentID)
	if errs.Is(err, errs.NotFound) {
		err = nil
	}
	return id, err
}

// SaveTask stores the remote task of an attempt.
func SaveTask(tx *store.Tx, t Task) error {
	return store.Insert(tx, "ON CONFLICT (task_id, attempt) DO UPDATE SET remote_id = excluded.remote_id, context_id = excluded.context_id, asked = excluded.asked", t)
}
