-- The table that stands in for your own. `make up` makes it once, as
-- .terrier/customers.db, and never touches it again.
CREATE TABLE customers (
  id     TEXT PRIMARY KEY,
  url    TEXT NOT NULL,
  plan   TEXT NOT NULL DEFAULT 'free',
  active INTEGER NOT NULL DEFAULT 1
);

INSERT INTO customers (id, url, plan) VALUES
  ('acme', 'https://acme.example.com/shop', 'gold'),
  ('bolt', 'https://bolt.example.com/shop', 'free'),
  ('crow', 'https://crow.example.com/shop', 'free');
