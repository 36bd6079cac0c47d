package models

import "time"

// ToolEdge says that two tools were used in one run, the one before the other. A tool is
// named serverId:toolName.
type ToolEdge struct {
	From string `gorm:"column:from_tool"`
	To   string `gorm:"column:to_tool"`
	// Runs is in how many successful runs they were used so.
	Runs     int64
	LastUsed time.Time
}

// ToolNode is what is known of a tool's use.
type ToolNode struct {
	Tool string
	// Runs and Failed are in how many successful and failed runs it was used.
	Runs, Failed int64
	LastUsed     time.Time
	// Rank is its PageRank, and Community the number of those it is used with; -1 where
	// they have not been computed.
	Rank      float64
	Community int
}

// ToolVector is what a model made of the text of a tool.
type ToolVector struct {
	// Digest is the SHA-256 of the model's name and the text, in hexadecimal digits.
	Digest string
	Vector []float32
}
