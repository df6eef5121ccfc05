"""The demo's customers: a thread that writes to the shop as applications do, at a bounded rate,
until it is stopped.

Transactions of several statements, inserts, updates, deletes, changed keys, upserts and rollbacks
over all tables. A seed decides what is done, so two demos write the same.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pymysql

from cdcsync_demo.shop import DATABASE, SKUS, WAREHOUSES, sku

Connect = Callable[[], "pymysql.connections.Connection[Any]"]
Transaction = list[tuple[str, tuple[Any, ...]]]
_ORDERED = f"INSERT INTO {DATABASE}.orders (customer_id, placed_at, total) VALUES (%s, NOW(6), %s)"
_ORDER_LINE = (
    f"INSERT INTO {DATABASE}.order_lines (order_id, line, sku, quantity, price)"
    " VALUES (LAST_INSERT_ID(), %s, %s, %s, %s)"
)
_TAKEN = f"UPDATE {DATABASE}.stock SET on_hand = on_hand - %s WHERE warehouse = %s AND sku = %s"
_SOLD = (
    f"INSERT INTO {DATABASE}.daily_sales VALUES (CURRENT_DATE, 1, %s, YEAR(CURRENT_DATE))"
    " ON DUPLICATE KEY UPDATE orders = orders + 1, revenue = revenue + VALUES(revenue)"
)


class DemoWriter:
    """`connect` makes a connection as root; `rate` is in transactions a second; `customers` and
    `orders` are there at the beginning."""

    def __init__(self, connect: Connect, rate: float, customers: int, orders: int, seed: int = 1) -> None:
        self._connect, self._rate = connect, rate
        self._shop = _Customers(Random(seed), customers, orders)  # noqa: S311 (nothing secret)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop-writes", daemon=True)
        self.transactions = 0
        self.rows = 0
        self.failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finishes the transaction at hand. Raises what ended the writes before."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            with self._connect() as connection:
                while not self._stopping.wait(1 / self._rate):
                    self._write(connection)
        except BaseException as e:  # noqa: BLE001 (raised by `stop` in the thread that started this one)
            self.failure = e

    def _write(self, connection: pymysql.connections.Connection[Any]) -> None:
        statements, commit = self._shop.next()
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            changed = sum(cursor.execute(sql, values) for sql, values in statements)
            cursor.execute("COMMIT" if commit else "ROLLBACK")
        if commit:
            self.transactions += 1
            self.rows += changed


class _Customers:
    """What people do next."""

    def __init__(self, random: Random, customers: int, orders: int) -> None:
        self._random, self._customers, self._orders = random, customers, orders
        self._sessions: list[bytes] = []
        self._renamed = 0

    def next(self) -> tuple[Transaction, bool]:
        """Statements of one transaction, and whether it is committed."""
        kinds = (
            self._order,
            self._pay,
            self._cancel,
            self._visit,
            self._price,
            self._rename,
            self._profile,
            self._close,
        )
        (kind,) = self._random.choices(kinds, (30, 20, 8, 20, 8, 2, 10, 2))
        return kind(), self._random.random() > 0.05

    def _sku(self) -> str:
        return sku(self._random.randint(1, SKUS))

    def _order(self) -> Transaction:
        """New lines for a new order; the stock goes down; the day's sales go up."""
        lines = [
            (n, self._sku(), self._random.randint(1, 5), self._random.randint(100, 20000) / 100) for n in (1, 2, 3)
        ]
        total = round(sum(quantity * price for _, _, quantity, price in lines), 2)
        customer = self._random.randint(1, self._customers)
        return [
            (_ORDERED, (customer, total)),
            *((_ORDER_LINE, line) for line in lines),
            *((_TAKEN, (quantity, self._random.randint(1, WAREHOUSES), item)) for _, item, quantity, _ in lines),
            (_SOLD, (total,)),
        ]

    def _some_order(self) -> int:
        return self._random.randint(1, self._orders)

    def _pay(self) -> Transaction:
        return [
            (
                f"UPDATE {DATABASE}.orders SET status = %s, remark = NULL WHERE id = %s",
                (self._random.choice(("paid", "shipped")), self._some_order()),
            )
        ]

    def _cancel(self) -> Transaction:
        order = self._some_order()
        return [
            (f"DELETE FROM {DATABASE}.order_lines WHERE order_id = %s", (order,)),
            (f"UPDATE {DATABASE}.orders SET status = 'cancelled', total = 0, remark = '' WHERE id = %s", (order,)),
        ]

    def _visit(self) -> Transaction:
        self._sessions.append(self._random.randbytes(16))
        values = (self._sessions[-1], self._random.randint(1, self._customers), f"Agent/{self._random.randint(1, 30)}")
        return [(f"INSERT INTO {DATABASE}.sessions VALUES (%s, %s, NOW(6), NULL, %s)", values)]

    def _close(self) -> Transaction:
        """Old sessions go."""
        gone, self._sessions = self._sessions[:5], self._sessions[5:]
        return [(f"DELETE FROM {DATABASE}.sessions WHERE id = %s", (session,)) for session in gone]

    def _price(self) -> Transaction:
        values = (self._random.randint(100, 20000) / 100, self._random.choice(("", "sale", "new,eco")), self._sku())
        return [(f"UPDATE {DATABASE}.products SET price = %s, tags = %s WHERE sku = %s", values)]

    def _rename(self) -> Transaction:
        """A key changes: a row of products under another SKU, an order line under another
        number."""
        self._renamed += 1
        fresh = (f"ren-{self._renamed:08d}", self._sku())
        return [
            (f"UPDATE {DATABASE}.products SET sku = %s WHERE sku = %s", fresh),
            (
                f"UPDATE {DATABASE}.order_lines SET line = line + 100 WHERE order_id = %s AND line = 2",
                (self._some_order(),),
            ),
        ]

    def _profile(self) -> Transaction:
        values = (
            self._random.random(),
            json.dumps({"points": self._random.randint(0, 999)}),
            self._random.randint(1, self._customers),
        )
        return [
            (
                f"UPDATE {DATABASE}.customers SET balance = balance + %s, profile = %s, seen_at = NOW(3) WHERE id = %s",
                values,
            )
        ]
