-- Agents that registered themselves without proof of their identity have a mark. Before, the prefixes of
-- their id and description identified them.

-- +goose Up
ALTER TABLE agents ADD COLUMN self_registered INTEGER NOT NULL DEFAULT 0 CHECK (self_registered IN (0, 1));
UPDATE agents SET self_registered = 1
    WHERE id LIKE 'v5-%' AND (description = 'registered itself over TCP' OR description LIKE 'registered itself over TCP: %');

-- +goose Down
ALTER TABLE agents DROP COLUMN self_registered;
