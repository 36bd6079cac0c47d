package models

import (
	"encoding/json"
	"time"
)

// Upstream is an MCP server that was added at run time, as it is kept. Those of a file are
// not: the file is what tells of them.
type Upstream struct {
	// ID is [A-Za-z0-9-]+, what names of its tools begin with.
	ID string
	// Config is its entry in the JSON of "mcpServers". It names secrets and holds none.
	Config json.RawMessage
	// Version counts the changes, from 1.
	Version   int64
	CreatedBy string
	CreatedAt time.Time
	UpdatedAt time.Time
}
