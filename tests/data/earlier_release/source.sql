-- part: before the snapshot
CREATE DATABASE shop CHARACTER SET utf8mb4;
CREATE DATABASE half CHARACTER SET utf8mb4;
CREATE TABLE shop.orders (id INT UNSIGNED PRIMARY KEY, word VARCHAR(20) NOT NULL, at DATETIME(6), amount DECIMAL(12,3));
CREATE TABLE shop.items (word VARCHAR(20) NOT NULL, number BIGINT NOT NULL, secret TEXT, kind ENUM('a','b'), PRIMARY KEY (word, number));
CREATE TABLE shop.idle (id INT PRIMARY KEY, doc JSON, code UUID);
CREATE TABLE half.numbers (id INT PRIMARY KEY, word VARCHAR(20) NOT NULL);
INSERT INTO shop.orders WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) SELECT i, CONCAT('ä', i), '2026-01-02 03:04:05.678901', i / 7 FROM n;
INSERT INTO shop.items WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) SELECT CONCAT('w', i % 5), i, 'hidden', IF(i % 2, 'a', 'b') FROM n;
INSERT INTO shop.idle VALUES (1, '{"a": [1, 2]}', '123e4567-e89b-12d3-a456-426655440000');
INSERT INTO half.numbers WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) SELECT i * 3, CONCAT('w', i) FROM n;
-- part: first changes
UPDATE shop.orders SET word = 'changed' WHERE id % 10 = 0;
DELETE FROM shop.orders WHERE id % 50 = 1;
INSERT INTO shop.items VALUES ('new', 1, 'hidden', NULL);
UPDATE shop.items SET number = number + 1000 WHERE word = 'w1';
ALTER TABLE shop.orders ADD COLUMN note VARCHAR(20) DEFAULT 'none';
UPDATE shop.orders SET note = 'written' WHERE id = 2;
-- part: changes for the next release
UPDATE shop.orders SET amount = -1 WHERE id <= 20;
INSERT INTO shop.orders VALUES (9001, 'later', NULL, 0.5, NULL);
DELETE FROM shop.items WHERE word = 'w2';
UPDATE half.numbers SET word = 'changed' WHERE id <= 60;
DELETE FROM half.numbers WHERE id > 1100;
