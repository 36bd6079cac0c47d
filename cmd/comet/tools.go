package main

import (
	"context"
	"strings"
)

// changeTool sends a request about the tool SERVER:TOOL.
func changeTool(ctx context.Context, c *call) error {
	server, tool, ok := strings.Cut(c.args[0], ":")
	if !ok || server == "" || tool == "" {
		return usagef("a tool must be named SERVER:TOOL, not %q", c.args[0])
	}
	c.sent["upstream_id"], c.sent["tool"] = server, tool
	return sendAndShow(ctx, c)
}

// changePolicy shows the policy of a token, sets it from flags or a file, or removes it.
func changePolicy(ctx context.Context, c *call) (err error) {
	_, path, _ := strings.Cut(c.request, " ")
	rules := c.changed("allow") || c.changed("deny") || c.changed("class")
	switch set, clear := c.changed("set"), c.changed("clear"); {
	case set && clear || rules && (set || clear):
		return usagef("give --set, --clear, or --allow, --deny and --class, not both")
	case clear:
		c.request, c.message = "DELETE "+path, `cleared the policy of {{index . "TOKEN-ID"}}`
	case set:
		c.request = "PUT " + path
		c.sent["*"], err = c.readInput(given[string](c, "set"))
	case rules:
		c.request = "PUT " + path
		for _, name := range []string{"allow", "deny"} {
			list := []map[string]string{}
			for _, pattern := range given[[]string](c, name) {
				list = append(list, map[string]string{"tool": pattern})
			}
			c.sent[name] = list
		}
		c.sent["classes"] = append([]string{}, given[[]string](c, "class")...)
	}
	if err != nil {
		return err
	}
	return sendAndShow(ctx, c)
}
