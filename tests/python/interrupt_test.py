"""Ctrl-C ends a command that works: long before it would have ended, or this test runs into its time-out."""

import os
import signal
import threading
import unittest

import sp_plan

LONG = {"heads": 64, "seq": "1M", "ring": 2048, "strategy": "ring", "force": True}


class Interrupt(unittest.TestCase):
    def interrupted(self, call):
        # The timer's thread runs only because the GIL is released.
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            call()
        timer.join()

    def test_verify(self):
        self.interrupted(lambda: sp_plan.verify(**LONG))

    def test_plan(self):
        self.interrupted(lambda: sp_plan.plan(model="deepseek-v3", seq="1M", topology="dgx-h100", nodes=512,
                                              global_batch=4096, top=1000, budget=3600))

    def test_afterwards_all_works_as_before(self):
        self.interrupted(lambda: sp_plan.verify(**LONG))
        self.assertTrue(sp_plan.verify(heads=4, seq=64, ring=2)["proven"])
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


if __name__ == "__main__":
    unittest.main()
