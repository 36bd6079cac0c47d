package models

import "time"

// AgentSort is the column a list is ordered by; the id breaks ties.
type AgentSort string

// The sort orders.
const (
	SortID        AgentSort = "id"
	SortName      AgentSort = "name"
	SortLevel     AgentSort = "level"
	SortCreatedAt AgentSort = "created_at"
)

// AgentQuery selects a page of agents. Nil filters do not filter.
type AgentQuery struct {
	SphereID     *int
	Level        *int
	FrequencyHz  *int
	Active       *bool
	ParentID     *string
	Capabilities []string // all of them; with or without custom:
	Text         string   // case-insensitive part of id, name or description

	Sort       AgentSort
	Descending bool
	Limit      int // 1-1000
	Offset     int
	// After is the position behind which the page starts; it replaces Offset.
	After *AgentPosition
	// Count asks for the total.
	Count bool
}

// AgentPosition is a place in a sorted list: the sort key and the id there.
type AgentPosition struct {
	Name      string
	Level     int
	CreatedAt time.Time
	ID        string
}

// AgentPage is one page of a list.
type AgentPage struct {
	Agents []Agent
	// Total is the number of agents the filters select, nil if not asked for.
	Total *int64
	// More reports whether a next page exists.
	More bool
}

// Precondition decides whether a change may go ahead on a version of the row;
// nil always may.
type Precondition func(version int64) error
