package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestListed checks that an inbox which was read from the database does not hide a message that was
// added after the read, or whose commit is under way.
func TestListed(t *testing.T) {
	t.Parallel()
	c, err := New(false)
	require.NoError(t, err)
	c.Load([]models.InboxMessage{{AgentID: "a", ID: "m1", TaskID: "t1"}}, []string{"a"}, 0)
	added := &Change{}
	c.AddMessages(added, "a")

	_, old, ok := c.Messages("a", 10)
	require.False(t, ok, "the database may have other messages")
	c.Listed("a", old, []models.InboxMessage{{AgentID: "a", ID: "m1", TaskID: "t1"}})
	list, _, ok := c.Messages("a", 10)
	require.True(t, ok, "it has none")
	require.Len(t, list, 1)

	c.Forget(added)
	c.Publish(added)
	c.Listed("a", old, nil) // a slow reader, before the commit
	_, change, ok := c.Messages("a", 10)
	require.False(t, ok)

	c.Forget(added)
	c.Listed("a", change, nil)
	c.Publish() // the commit failed
	_, _, ok = c.Messages("a", 10)
	require.False(t, ok, "a commit was under way")

	c.Listed("a", change, []models.InboxMessage{{AgentID: "a", ID: "m2", TaskID: "t1"}})
	_, _, ok = c.Messages("a", 10)
	require.False(t, ok, "the list has a message that is no known task")
	c.Listed("a", change, nil)
	_, _, ok = c.Messages("a", 10)
	require.True(t, ok)
}
