package ledgercheck

import (
	"strconv"
	"time"
)

// chargeDelay is the maximum time between the end of a tool call and its charge.
const chargeDelay = 5 * time.Minute

// toolCalls finds tool calls that were not charged. A charge is recorded after its call, so the charges
// since a day are at least the calls since that day; a clock may go back by less than an hour between the
// two. The call of a task is charged with the task. Deleted calls only reduce the calls of earlier days.
func (c check) toolCalls() error {
	type day struct {
		AgentID              string
		Day, Charged, Called int64
	}
	var agentID string
	var missing, reported int64 // since the day of the row
	return each(c, "1, 2 DESC", func(d day) error {
		if d.AgentID != agentID {
			agentID, missing, reported = d.AgentID, 0, 0
		}
		if missing += d.Called - d.Charged; missing <= reported {
			return nil
		}
		uncharged := missing - reported
		reported = missing
		return c.differ(Difference{AgentID: agentID, What: "tool_calls", Where: date(d.Day), Stored: d.Called - uncharged, Computed: d.Called}.proposed())
	}, `SELECT agent_id, day, sum(charged), sum(called) FROM (
		SELECT agent_id, (at + ?) / ? AS day, tokens AS charged, 0 AS called FROM usage_facts WHERE kind = 'tool_calls' AND at >= ?
		UNION ALL
		SELECT agent_id, at / ?, 0, tokens FROM tool_calls WHERE source <> 'task' AND at >= ? AND at + duration < ?) AS sums GROUP BY agent_id, day`,
		hourMicros, dayMicros, c.from*dayMicros, dayMicros, c.from*dayMicros, c.now.Add(-chargeDelay))
}

// records compares events with their positions, deliveries with their events, and budget alerts with
// the accounts. Only rows that no purge has deleted are expected, and only deliveries to webhooks that were
// changed at least an hour before the event, because clocks of replicas differ and transactions overlap.
func (c check) records(alone bool) error {
	const kept = "(SELECT coalesce(max(cutoff), 0) FROM purges WHERE kind = 'events')"
	hour, day := strconv.FormatInt(hourMicros, 10), strconv.FormatInt(dayMicros, 10)
	handled := "position" // of the events whose deliveries are written
	if alone {
		handled = "delivered"
	}
	for _, query := range []string{
		`SELECT '' AS agent_id, 'positions', '', count(*), max(position) - min(position) + 1 FROM events
			WHERE position >= (SELECT min(position) FROM events WHERE at >= ` + kept + ` + ` + hour + `)
			HAVING count(*) <> max(position) - min(position) + 1`,
		`SELECT CASE WHEN type LIKE 'agent.%' THEN key ELSE '' END AS agent_id, 'event', webhook_id || ' ' || event_id, 0, 1 FROM deliveries d
			WHERE position > 0 AND event_at >= ` + kept + ` AND NOT EXISTS (SELECT 1 FROM events e WHERE e.position = d.position AND e.id = d.event_id)`,
		`SELECT CASE WHEN e.type LIKE 'agent.%' THEN e.key ELSE '' END AS agent_id, 'delivery', w.id || ' ' || e.id, 0, 1 FROM webhooks w CROSS JOIN events e
			WHERE w.enabled = TRUE AND w.confined_to = '[]' AND e.position <= (SELECT ` + handled + ` FROM event_head) AND e.at >= w.updated_at + ` + hour + `
			AND e.at >= (SELECT coalesce(max(cutoff), 0) FROM purges WHERE kind = 'deliveries')
			AND (e.type LIKE 'agent.%' AND (w.agent_id IS NULL OR w.agent_id = e.key) OR e.type LIKE 'webhook.%' AND w.agent_id IS NULL AND w.id <> e.key)
			AND (w.events LIKE '%"*"%' OR w.events LIKE '%"' || e.type || '"%' OR w.events LIKE CASE WHEN e.type LIKE 'agent.%' THEN '%"agent.*"%' ELSE '%"webhook.*"%' END)
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.event_id = e.id AND d.webhook_id = w.id)`,
		alertQuery("warned_day", "agent.budget_warning", kept, day), alertQuery("exceeded_day", "agent.budget_exceeded", kept, day),
	} {
		if err := c.find(query); err != nil {
			return err
		}
	}
	return nil
}

// alertQuery finds accounts with an alert whose event is missing. Their day may be one ahead of the event's time.
func alertQuery(column, event, kept, day string) string {
	return `SELECT agent_id, 'event', '` + event + `', 0, 1 FROM usage_accounts a WHERE ` + column + ` = day AND (day - 1) * ` + day + ` >= ` + kept + `
		AND NOT EXISTS (SELECT 1 FROM events e WHERE e.key = a.agent_id AND e.type = '` + event + `' AND e.at >= (a.day - 1) * ` + day + `)`
}
