! Array sections, a recursive function, an internal procedure, formatted output.
program grid
  implicit none
  real(8) :: a(24, 24), total
  integer :: i
  total = 0
  do i = 1, 12
    a = 1.0d0 / i
    call relax(a(2:23, 2:23))
    total = total + sum(matmul(a, transpose(a))) + fib(8)
  end do
  print '(f20.6)', total
contains
  subroutine relax(b)
    real(8), intent(inout) :: b(:, :)
    integer :: x, y
    do y = 2, size(b, 2) - 1
      do x = 2, size(b, 1) - 1
        b(x, y) = mean(b(x - 1:x + 1, y - 1:y + 1))
      end do
    end do
  end subroutine
  real(8) function mean(c)
    real(8), intent(in) :: c(:, :)
    mean = sum(c) / size(c)
  end function
  recursive integer function fib(n) result(f)
    integer, intent(in) :: n
    if (n < 2) then
      f = n
    else
      f = fib(n - 1) + fib(n - 2)
    end if
  end function
end program
