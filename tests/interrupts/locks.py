"""What holds of each context that takes a lock."""


def check_taken_and_freed(case, lock, taking):
    """Within `taking()` the lock is taken; behind it, it is free, also where
    an error ends it."""
    for error in None, KeyError:
        try:
            with taking():
                case.assertTrue(lock.locked())
                if error:
                    raise error
        except KeyError:
            pass
        case.assertFalse(lock.locked())
